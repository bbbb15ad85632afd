"""The methods and recipes of the paper, the configurations of runs, and the agents built from them."""
