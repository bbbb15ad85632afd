"""Where a request goes, whatever prefix the board is served under."""

from __future__ import annotations

from starlette.types import Scope

API = "/api/"


def route_path(scope: Scope) -> str:
    """The path of a request below the prefix of ``--root-path``."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def is_api(scope: Scope) -> bool:
    """Whether a program asks, which wants JSON, or a person."""
    return route_path(scope).startswith(API)
