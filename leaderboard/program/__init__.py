"""A predictor as data: how a program is written, read and run."""
