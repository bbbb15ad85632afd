"""The Python client of a board's API."""

from leaderboard.client.client import Client, Me

__all__ = ["Client", "Me"]
