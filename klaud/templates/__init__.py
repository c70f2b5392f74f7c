"""Text that klaud init writes into a repository: package data."""
