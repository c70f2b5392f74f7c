"""One wave: which candidates there are, which may start, and starting them."""
