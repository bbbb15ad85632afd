"""What is scored: tasks, predictors and how they answer, ensembles, and what may be deployed."""
