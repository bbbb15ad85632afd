"""The compiled engine: several steps of an MLP in one call of `torch.compile`."""
