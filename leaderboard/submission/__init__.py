"""A submission: its files, its manifest, and the checks that do not execute it."""
