"""Start a program in a sandbox: ``python -m leaderboard.sandbox.sandbox_main MODULE WORD...`` calls ``MODULE.main``.

The programs import PyTorch, which takes most of a sandbox's start. The imports make half a million objects, which live
as long as the process. The garbage collector is off during the imports, and `gc.freeze` excludes these objects from
every later collection.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys


def main() -> int:
    """Import the module and call its ``main`` with the other words; return the exit status."""
    name, words = sys.argv[1], sys.argv[2:]
    gc.disable()
    program = importlib.import_module(name)
    gc.freeze()
    gc.enable()
    status: int = program.main(words)
    return status


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # does not wait for threads and exit handlers of a submission
