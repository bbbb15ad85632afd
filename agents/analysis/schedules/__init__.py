"""Schedules of finished runs, compared by their errors, FLOPs and memory."""
