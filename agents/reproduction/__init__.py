"""The paper again: what its figures and tables need as sweeps, what that costs, and which of its findings hold."""
