"""The first version of the tables. `Base.metadata` has the naming convention of constraints and indexes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
WHOLE = sa.String(40)
METRICS = ("cer", "mem", "comp", "paper_flops", "final_error", "seconds")


def upgrade() -> None:
    """Upgrade to this version."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(length=80), nullable=False, unique=True),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("disabled_at", MOMENT, nullable=True),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("account_id", sa.Integer(), sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rules_version", sa.String(length=20), nullable=False),
        sa.Column("env_id", sa.String(length=80), nullable=False, index=True),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("waiting_time", sa.Integer(), nullable=True),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("package", sa.LargeBinary(), nullable=False),
        sa.Column("package_bytes", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.UniqueConstraint("digest", "rules_version"),
    )
    op.create_index("ix_submissions_account_id_created_at", "submissions", ["account_id", "created_at"])
    op.create_index("ix_submissions_state_created_at", "submissions", ["state", "created_at"])

    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("account_id", sa.Integer(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False, unique=True),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("last_used_at", MOMENT, nullable=True),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("submission_id", sa.Integer(), sa.ForeignKey("submissions.id"), nullable=True, index=True),
        sa.Column("account_id", sa.Integer(), sa.ForeignKey("accounts.id"), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("submission_id", sa.Integer(), sa.ForeignKey("submissions.id"), nullable=False, unique=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("maximum_attempts", sa.Integer(), nullable=False),
        sa.Column("available_at", MOMENT, nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_key", sa.String(length=32), nullable=True),
        sa.Column("lease_until", MOMENT, nullable=True),
        sa.Column("progress", sa.String(length=200), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("finished_at", MOMENT, nullable=True),
    )
    op.create_index("ix_jobs_state_available_at", "jobs", ["state", "available_at"])
    op.create_index("ix_jobs_state_lease_until", "jobs", ["state", "lease_until"])

    op.create_table(
        "results",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("submission_id", sa.Integer(), sa.ForeignKey("submissions.id"), nullable=False, unique=True),
        sa.Column("env_id", sa.String(length=80), nullable=False),
        sa.Column("rules_version", sa.String(length=20), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("waiting_time", sa.Integer(), nullable=True),
        sa.Column("budget_class", sa.Integer(), nullable=True),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("flagged", sa.Boolean(), nullable=False),
        sa.Column("seeds", sa.Integer(), nullable=False),
        *(sa.Column(f"{metric}_{part}", sa.Double(), nullable=True) for metric in METRICS for part in ("mean", "half")),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("verified_at", MOMENT, nullable=False),
    )
    board = ["env_id", "rules_version", "published"]
    op.create_index("ix_results_board_budget", "results", [*board, "budget_class", "cer_mean"])
    op.create_index("ix_results_board_wait", "results", [*board, "waiting_time", "cer_mean"])
    filters = ["published", "env_id", "rules_version", "method", "budget_class", "waiting_time"]
    op.create_index("ix_results_filters", "results", filters)
    op.create_index("ix_results_board_method", "results", [*board, "method", "cer_mean"])
    for metric in METRICS:
        op.create_index(f"ix_results_board_{metric}", "results", [*board, f"{metric}_mean", "submission_id"])

    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("result_id", sa.Integer(), sa.ForeignKey("results.id"), nullable=False, index=True),
        sa.Column("severity", sa.String(length=20), nullable=False),
        sa.Column("code", sa.String(length=80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "result_runs",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("result_id", sa.Integer(), sa.ForeignKey("results.id"), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("cer", sa.Double(), nullable=False),
        sa.Column("mem", WHOLE, nullable=False),
        sa.Column("comp", WHOLE, nullable=False),
        sa.Column("paper_flops", WHOLE, nullable=False),
        sa.Column("final_error", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("ledger", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("result_id", "seed"),
    )


def downgrade() -> None:
    """Downgrade to the previous version."""
    for table in ("result_runs", "findings", "results", "jobs", "events", "tokens", "submissions", "accounts"):
        op.drop_table(table)
