"""Recorded runs as tables, and the models of learning curves and trainings that are fitted to them."""
