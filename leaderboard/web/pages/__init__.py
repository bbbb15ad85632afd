"""The pages of the board. They are made on another branch; until then there is one that says what is here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

router = APIRouter()


@router.get("/", response_class=HTMLResponse)
def front() -> str:
    """What is here."""
    return "<!doctype html><html lang=en><title>alma-env</title><p>The API is at /api/v1.</p>"


def error_page(request: Request, status: int, title: str, problems: Sequence[str] = ()) -> Response:
    """An error, for people."""
    lines = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    page = f"<!doctype html><html lang=en><title>{escape(title)}</title><h1>{escape(title)}</h1><ul>{lines}</ul>"
    return HTMLResponse(page, status)
