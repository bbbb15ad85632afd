"""Alembic runs this file. Migrations use the transaction of `leaderboard.database.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from leaderboard.database.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
