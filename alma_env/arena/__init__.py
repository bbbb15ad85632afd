"""The arena: several agents on one stream, each with its own meter, ledger and budgets."""

from alma_env.arena.arena import Arena
from alma_env.arena.construction import env, parallel_env

__all__ = ["Arena", "env", "parallel_env"]
