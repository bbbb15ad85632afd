"""What each PyTorch operation is charged: the table of costs, and its formulas."""
