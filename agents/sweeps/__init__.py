"""Sweeps: a grid of runs, the processes and machines that compute them, and which runs are finished."""
