"""The API below ``/api/v1`` for programs such as `leaderboard.client` and curl."""

from __future__ import annotations

from fastapi import APIRouter

from leaderboard.web.api import accounts, boards, packages, submissions
from leaderboard.web.api.common import ANY_ERROR

router = APIRouter(prefix="/api/v1", responses=ANY_ERROR)
for _part in (boards, submissions, packages, accounts):
    router.include_router(_part.router)
