"""``python -m agents``: the same as ``alma``."""

import sys

from agents.cli import main

if __name__ == "__main__":
    sys.exit(main())
