"""The learners of the paper, one file per method."""
