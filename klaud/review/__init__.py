"""Does an open pull request already do this? Rules first, then an agent or a message batch."""
