"""Run by Alembic: migrations happen on the connection, and in the transaction, of `leaderboard.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from leaderboard.database import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by making it anew
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
