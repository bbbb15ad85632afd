"""When to wait as a reinforcement-learning problem, with real trainings."""
