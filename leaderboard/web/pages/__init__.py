"""The pages of the board. They are rendered on the server and work without JavaScript."""

from fastapi import APIRouter

from leaderboard.web.pages import account, boards, compare, review, sessions, sign_in, submissions, submit

router = APIRouter()
for _part in (boards, submissions, compare, submit, sessions, sign_in, account, review):
    router.include_router(_part.router)

__all__ = ["router"]
