"""What people read: sections of facts and tables, rendered as markdown, as text, and as one HTML page."""
