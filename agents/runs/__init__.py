"""Runs: an agent goes through a stream, and a run folder or a packed file holds the result."""
