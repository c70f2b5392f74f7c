"""Build-only sessions that turn a database's knowledge into named, tested entities of a semantic layer."""
