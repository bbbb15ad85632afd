"""The page of attacks is made of the gallery."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .cheaters import table


def test_the_page_of_attacks_is_up_to_date():
    script = Path(table.__file__)
    made = subprocess.run([sys.executable, str(script), "--print"], capture_output=True, text=True, check=True)
    assert table.PAGE.read_text(encoding="utf-8") == made.stdout, f"run: python {script}"
