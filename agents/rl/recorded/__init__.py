"""Recorded runs: those of the package, how they are recorded, read and chosen, and what their schedules cost."""
