"""A deterministic agent: a program of its own that speaks the agent command line's protocol. Imports nothing of klaud."""
