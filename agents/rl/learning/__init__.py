"""Policies that are learned on surrogates or on real streams, with Stable-Baselines3."""
