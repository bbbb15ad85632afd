"""Analysis of finished runs: groups of seeds, statistics, tables."""
