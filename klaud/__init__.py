"""Scheduled agent automation in GitHub Actions that cleans up after itself."""

__version__ = "0.1.0"
