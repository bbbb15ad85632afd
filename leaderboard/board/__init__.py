"""The board: submissions, the verification queue, results and standings."""
