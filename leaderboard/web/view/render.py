"""Pages from templates. The templates escape every value of the database and of visitors."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Hashable, Sequence
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
from leaderboard.web.guard.errors import root_path
from leaderboard.web.view import urls
from leaderboard.web.view.page_state import RenderedPage, page_state

_WEB = Path(__file__).parent.parent
STATIC = _WEB / "static"
_SMALL = 1_000  # bytes; compressing less saves nothing
_TYPE = "text/html; charset=utf-8"


# Texts for the kinds of events in a submission's history.
_EVENTS = {
    "submitted": "sent",
    "claimed": "a worker started the verification",
    "lease expired": "the worker was lost; another worker will start again",
    "attempt failed": "the attempt failed on the worker's side",
    "interrupted": "the worker's machine could not run it; a worker will start again",
    "held": "held until a maintainer has looked at the workers",
    "damaged": "not verified: the stored files are not those that were sent",
    "given back": "the worker was stopped; another worker will start again",
    "failed": "the verification failed",
    "queued again": "queued again by a maintainer",
    "verified": "verified",
    "flagged": "verified with suspicious findings; a maintainer will decide",
    "rejected": "rejected",
    "accepted": "accepted by a maintainer",
}


@cache
def _static(name: str) -> str:
    """Return the URL of a static file. The digest in it makes browsers load a changed file."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def _toml(value: bool | int | float | str) -> str:
    """Return a hyper-parameter as text, in the notation of the manifest."""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _value(pair: tuple[str, str]) -> Markup:
    """Return a mean and its half width as HTML. It is not a Jinja macro, because a page has hundreds of them."""
    mean, half = escape(pair[0]), escape(pair[1])
    below = f'<span class="half">± {half}</span>' if half else ""
    return Markup(f'<span class="mean">{mean}</span>{below}')


def _authors(names: Sequence[str]) -> str:
    """Return the first three authors."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _paragraphs(text: str) -> list[list[str]]:
    """Split a text into paragraphs of lines."""
    blocks = [block.strip("\n") for block in text.replace("\r\n", "\n").split("\n\n")]
    return [block.split("\n") for block in blocks if block.strip()]


def _web_link(address: str) -> str | None:
    """Return a URL if a page may link to it: http or https. Return None for others, which are shown as text."""
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
    urls=urls,
    budget_class_text=budget_class_text,
)
for _function in (numbers.count, numbers.exact, numbers.count_interval, numbers.decimals, numbers.duration):
    _templates.filters[_function.__name__] = _function
_templates.filters.update(
    signed_count=lambda interval: numbers.signed(numbers.count_interval(interval)),
    signed_decimals=lambda interval, digits: numbers.signed(numbers.decimals(interval, digits)),
    signed_duration=lambda seconds: ("−" if seconds < 0 else "+") + numbers.duration(abs(seconds)),
    event=lambda kind: _EVENTS.get(kind, kind),
    moment=lambda moment: f"{moment:%Y-%m-%d %H:%M} UTC",
    toml=_toml,
    value=_value,
    authors=_authors,
    paragraphs=_paragraphs,
    web_link=_web_link,
)


def render(request: Request, template: str, **context: Any) -> str:
    """Render a template. Its variable ``root`` is the prefix of every URL (``--root-path``)."""
    return _templates.get_template(template).render(
        root=root_path(request.scope),
        title=request.app.state.settings.title,
        section=context.pop("section", ""),
        **context,
    )


def html(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Respond with a page for one visitor. Browsers and proxies do not store it."""
    body = render(request, template, **context)
    return Response(body, status, {"Cache-Control": "no-store"}, _TYPE)


def cached_html(request: Request, key: Hashable, version: Hashable, make: Callable[[], str]) -> Response:
    """Respond with a page that is the same for every visitor, from the cache if it has this version of the board.

    The response has status 304 and no body if the browser already has this page, by its ETag.
    """
    page = page_state(request).pages.get((root_path(request.scope), key), version, lambda: _rendered(make()))
    headers = {"Cache-Control": "no-cache", "ETag": page.tag, "Vary": "Accept-Encoding"}
    if page.tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    body = page.body
    if page.packed and _accepts_gzip(request.headers.get("accept-encoding", "")):
        body, headers["Content-Encoding"] = page.packed, "gzip"
    return Response(body, 200, headers, _TYPE)


def _accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding lists gzip with a weight above 0. A weight that is no number counts as 0."""
    for part in header.lower().split(","):
        coding, _, parameter = (piece.strip() for piece in part.partition(";"))
        if coding == "gzip":
            weight = re.fullmatch(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", parameter or "q=1")
            return weight is not None and float(weight[1]) > 0
    return False


def _rendered(text: str) -> RenderedPage:
    body = text.encode()
    # The ETag is weak, because the compressed page has the same one.
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    return RenderedPage(body, gzip.compress(body, 5, mtime=0) if len(body) >= _SMALL else b"", tag)


def error_page(request: Request, status: int, title: str, problems: Sequence[str] = ()) -> Response:
    """Respond with an error as a page. Its problems name the value, the rule and the remedy."""
    phrase = HTTPStatus(status).phrase  # the framework's own text, which does not help a visitor
    shown = [problem for problem in problems if problem != phrase]
    if status == 404 and not shown:
        shown = ["No page has this address; start from the boards"]
    return html(request, "error.html", status, code=status, heading=title, problems=shown)
