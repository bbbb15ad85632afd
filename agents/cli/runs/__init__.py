"""The subcommands that compute, list, draw, pack and compare runs."""
