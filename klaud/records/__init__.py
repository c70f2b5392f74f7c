"""Bounded record streams: whatever arrives line by line goes through here."""
