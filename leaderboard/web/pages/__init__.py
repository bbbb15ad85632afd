"""The pages for people: rendered here, complete without JavaScript."""

from fastapi import APIRouter

from leaderboard.web.pages import account, boards, compare, review, sending, sessions, submissions
from leaderboard.web.pages.render import error_page

router = APIRouter()
for _part in (boards, submissions, compare, sending, sessions, account, review):
    router.include_router(_part.router)

__all__ = ["error_page", "router"]
