"""The networks of the paper, and several networks computed together."""
