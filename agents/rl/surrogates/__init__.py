"""Fast environments on fitted models; how faithful they are, and what the best decisions on them cost."""
