"""The models of learning curves and trainings that are fitted to recorded runs."""
