"""Tournaments of the paper's agents in the arena."""
