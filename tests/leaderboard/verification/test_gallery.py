"""The page of attacks is made of the gallery."""

from __future__ import annotations

from .cheaters import table


def test_the_page_of_attacks_is_up_to_date():
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), f"run: python {table.__file__}"
