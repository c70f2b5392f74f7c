"""One bounded agent session inside one candidate workflow."""
