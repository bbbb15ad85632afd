"""The findings of the paper, and the comparisons that decide them."""
