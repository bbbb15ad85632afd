"""The pages for people: rendered here, complete without JavaScript."""

from fastapi import APIRouter

from leaderboard.web.pages import boards
from leaderboard.web.pages.render import error_page

router = APIRouter()
router.include_router(boards.router)

__all__ = ["error_page", "router"]
