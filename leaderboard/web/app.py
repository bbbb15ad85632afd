"""The application: the API and the pages behind the guard."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from sqlalchemy import Engine

import alma_env
from leaderboard.web import api, pages
from leaderboard.web.errors import handle_errors
from leaderboard.web.limits import Limiter
from leaderboard.web.security import Guard
from leaderboard.web.settings import Settings


def create_app(engine: Engine, settings: Settings | None = None) -> FastAPI:
    """The web application of a board.

    Args:
        engine: of the board's database, whose tables are there.
        settings: what the operator decides.
    """
    settings = settings or Settings()
    app = FastAPI(
        title=settings.title,
        version=alma_env.__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from another site
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.limiter = Limiter()
    app.state.uploads = asyncio.Semaphore(settings.uploads_at_once)
    app.include_router(api.router)
    app.include_router(pages.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    handle_errors(app)
    app.add_middleware(Guard, settings=settings)
    return app
