"""Which tensors hold what metered operations made: the content of storages, and how it flows."""
