"""Firefly: a network that becomes wider before each stage."""
