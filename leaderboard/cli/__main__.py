"""Run ``alma-leaderboard`` as ``python -m leaderboard.cli``."""

from __future__ import annotations

import sys

from leaderboard.cli import main

if __name__ == "__main__":
    sys.exit(main())
