"""The web application: the API and the pages, behind the guard."""

from __future__ import annotations

from pathlib import Path

from fastapi.staticfiles import StaticFiles
from sqlalchemy import Engine

import alma_env
from leaderboard.web import api, pages
from leaderboard.web.api.schemas import Application
from leaderboard.web.guard.errors import handle_errors
from leaderboard.web.guard.limits import Limiter
from leaderboard.web.guard.security import Guard
from leaderboard.web.guard.settings import Settings
from leaderboard.web.guard.uploads import Places
from leaderboard.web.view.page_state import PageState
from leaderboard.web.view.render import error_page


def create_app(engine: Engine, settings: Settings | None = None) -> Application:
    """Return the web application of a board whose database has its tables."""
    settings = settings or Settings()
    app = Application(
        title=settings.title,
        version=alma_env.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # FastAPI's documentation pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.limiter = Limiter()
    app.state.pages = PageState(engine)
    app.state.uploads = Places(settings)
    app.state.downloads = Places(settings)
    app.include_router(api.router)
    app.include_router(pages.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    handle_errors(app, error_page)
    app.add_middleware(Guard, settings=settings)
    return app
