"""Fair shares of accounts and addresses, interruptions, names that look alike, identities, marks of results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from leaderboard.database.skeleton import skeleton

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Upgrade to this version. Accounts whose names look alike keep them; the oldest one has the skeleton."""
    # Without a batch, which would drop and copy the table: other tables refer to its rows.
    op.add_column("accounts", sa.Column("skeleton", sa.String(length=80), nullable=True))
    op.add_column("accounts", sa.Column("network", sa.String(length=64), nullable=True))
    op.create_index("uq_accounts_skeleton", "accounts", ["skeleton"], unique=True)
    op.create_index("ix_accounts_network_created_at", "accounts", ["network", "created_at"])
    op.add_column("jobs", sa.Column("interruptions", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("network", sa.String(length=64), nullable=True))
    op.add_column("jobs", sa.Column("claimed_at", MOMENT, nullable=True))
    op.create_index("ix_jobs_network_claimed_at", "jobs", ["network", "claimed_at"])
    op.create_table(
        "identities",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("account_id", sa.Integer(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("provider", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("token_id", sa.Integer(), sa.ForeignKey("tokens.id"), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.UniqueConstraint("provider", "subject"),
    )
    op.add_column("results", sa.Column("own_costs", sa.Boolean(), nullable=True))
    op.add_column("result_runs", sa.Column("own_costs", sa.Boolean(), nullable=True))
    op.add_column("result_runs", sa.Column("cpu_seconds", sa.Double(), nullable=True))
    accounts = sa.table("accounts", sa.column("id", sa.Integer), sa.column("name"), sa.column("skeleton"))
    connection = op.get_bind()
    taken: set[str] = set()
    for id, name in connection.execute(sa.select(accounts.c.id, accounts.c.name).order_by(accounts.c.id)).all():
        found = skeleton(name)
        if found and found not in taken:
            taken.add(found)
            connection.execute(accounts.update().where(accounts.c.id == id).values(skeleton=found))


def downgrade() -> None:
    """Downgrade to the previous version. Accounts that were made by signing in elsewhere keep only their tokens."""
    op.drop_column("result_runs", "cpu_seconds")
    op.drop_column("result_runs", "own_costs")
    op.drop_column("results", "own_costs")
    op.drop_table("identities")
    op.execute("UPDATE jobs SET state = 'failed' WHERE state = 'held'")
    op.execute("UPDATE submissions SET state = 'failed' WHERE state = 'held'")
    op.drop_index("ix_jobs_network_claimed_at", "jobs")
    for column in ("interruptions", "network", "claimed_at"):
        op.drop_column("jobs", column)
    op.drop_index("ix_accounts_network_created_at", "accounts")
    op.drop_index("uq_accounts_skeleton", "accounts")
    for column in ("skeleton", "network"):
        op.drop_column("accounts", column)
