"""Reproduction of the paper: the sweeps behind its figures and tables, their costs, and verdicts on its findings."""
