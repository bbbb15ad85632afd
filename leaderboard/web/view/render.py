"""Pages from templates. Whatever a database or a visitor says is a text, and is escaped as one."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

import alma_env
from leaderboard.rules import RULES_VERSION, TICKS, budget_class_text
from leaderboard.web.charts import numbers
from leaderboard.web.pages import addresses
from leaderboard.web.pages.shared import Page, shared

_WEB = Path(__file__).parent.parent
STATIC = _WEB / "static"
_SMALL = 1_000  # bytes, below which packing saves nothing
_TYPE = "text/html; charset=utf-8"


@cache
def _static(name: str) -> str:
    """A file of the style, with its content's digest, so that a browser never keeps an old one."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _plain(value: bool | int | float | str) -> str:
    """A plain value as a manifest has it."""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _value(pair: tuple[str, str]) -> Markup:
    """A mean and its half width. As a function, since a page has hundreds of them and Jinja's macros are slow."""
    mean, half = escape(pair[0]), escape(pair[1])
    below = f'<span class="half">± {half}</span>' if half else ""
    return Markup(f'<span class="mean">{mean}</span>{below}')


def _authors(names: Sequence[str]) -> str:
    """The first three of them."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _paragraphs(text: str) -> list[list[str]]:
    """A text as paragraphs of lines."""
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n")]
    return [block.split("\n") for block in blocks if block.strip()]


def _web_link(address: str) -> str | None:
    """An address that may be linked to: http or https. None for others, which are shown as a text."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.netloc else None


_templates = Environment(
    loader=FileSystemLoader(_WEB / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.globals.update(
    version=alma_env.__version__,
    rules_now=RULES_VERSION,
    ticks=TICKS,
    static=_static,
    to=addresses,
    budget_class_text=budget_class_text,
)
_templates.filters.update(
    count=numbers.count,
    exact=numbers.exact,
    count_interval=numbers.count_interval,
    decimals=numbers.decimals,
    duration=numbers.duration,
    signed_count=lambda interval: numbers.signed(numbers.count_interval(interval)),
    signed_decimals=lambda interval, digits: numbers.signed(numbers.decimals(interval, digits)),
    signed_duration=lambda seconds: ("−" if seconds < 0 else "+") + numbers.duration(abs(seconds)),
    moment=_moment,
    plain=_plain,
    value=_value,
    authors=_authors,
    paragraphs=_paragraphs,
    web_link=_web_link,
)


def text(request: Request, template: str, **context: Any) -> str:
    """A page as text. ``root`` is what stands before every address where the board is not at a server's root."""
    return _templates.get_template(template).render(
        root=request.scope.get("root_path", "").rstrip("/"),
        title=request.app.state.settings.title,
        section=context.pop("section", ""),
        **context,
    )


def html(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page for one visitor, which nobody keeps."""
    body = text(request, template, **context)
    return Response(body, status, {"Cache-Control": "no-store"}, _TYPE)


def remembered(request: Request, key: Hashable, version: Hashable, make: Callable[[], str]) -> Response:
    """A page that is the same for everyone, made once for a version of the board and for some seconds.

    A browser that has it already, by its tag, is told so and gets nothing.
    """
    root = request.scope.get("root_path", "")
    page = shared(request).pages.get((root, key), version, lambda: _page(make()))
    headers = {"Cache-Control": "no-cache", "ETag": page.tag, "Vary": "Accept-Encoding"}
    if page.tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    body = page.body
    if page.packed and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = page.packed, "gzip"
    return Response(body, 200, headers, _TYPE)


def _page(text: str) -> Page:
    body = text.encode()
    # The tag is weak: the packed page and the plain one have the same.
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return Page(body, gzip.compress(body, 5, mtime=0) if len(body) >= _SMALL else b"", tag)


def error_page(request: Request, status: int, title: str, problems: Sequence[str] = ()) -> Response:
    """What went wrong, as a page.

    Args:
        request: that it answers.
        status: of HTTP.
        title: in a few words.
        problems: what is wrong with which value, and the remedy.
    """
    phrase = HTTPStatus(status).phrase  # which is all that the framework says, and nothing that helps
    said = [problem for problem in problems if problem != phrase]
    if status == 404 and not said:
        said = ["This address leads nowhere; what is here is reached from the boards"]
    return html(request, "error.html", status, code=status, heading=title, problems=said)
