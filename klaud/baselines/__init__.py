"""Prove a published number against the CI matrix of the commit that produced it."""
