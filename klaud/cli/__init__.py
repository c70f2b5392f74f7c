"""The command line: one file per group of verbs. Only here are live objects built."""
