"""The first version of the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
WHOLE = sa.String(40)


def upgrade() -> None:
    """Upgrade to this version."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("disabled_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("name", name="uq_accounts_name"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("rules_version", sa.String(length=20), nullable=False),
        sa.Column("env_id", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("waiting_time", sa.Integer(), nullable=True),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("package", sa.LargeBinary(), nullable=False),
        sa.Column("package_bytes", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_submissions_account_id_accounts"),
        sa.PrimaryKeyConstraint("id", name="pk_submissions"),
        sa.UniqueConstraint("digest", "rules_version", name="uq_submissions_digest_rules_version"),
    )
    op.create_index("ix_submissions_account_id_created_at", "submissions", ["account_id", "created_at"])
    op.create_index("ix_submissions_env_id", "submissions", ["env_id"])
    op.create_index("ix_submissions_state_created_at", "submissions", ["state", "created_at"])

    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("last_used_at", MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_tokens_account_id_accounts"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_index("ix_tokens_account_id", "tokens", ["account_id"])

    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=True),
        sa.Column("account_id", sa.Integer(), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_events_account_id_accounts"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_events_submission_id_submissions"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_submission_id", "events", ["submission_id"])

    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=False),
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
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_jobs_submission_id_submissions"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("submission_id", name="uq_jobs_submission_id"),
    )
    op.create_index("ix_jobs_state_available_at", "jobs", ["state", "available_at"])
    op.create_index("ix_jobs_state_lease_until", "jobs", ["state", "lease_until"])

    op.create_table(
        "results",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=False),
        sa.Column("env_id", sa.String(length=80), nullable=False),
        sa.Column("rules_version", sa.String(length=20), nullable=False),
        sa.Column("method", sa.String(length=40), nullable=False),
        sa.Column("waiting_time", sa.Integer(), nullable=True),
        sa.Column("budget_class", sa.Integer(), nullable=True),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("flagged", sa.Boolean(), nullable=False),
        sa.Column("seeds", sa.Integer(), nullable=False),
        sa.Column("cer_mean", sa.Double(), nullable=True),
        sa.Column("cer_half", sa.Double(), nullable=True),
        sa.Column("mem_mean", sa.Double(), nullable=True),
        sa.Column("mem_half", sa.Double(), nullable=True),
        sa.Column("comp_mean", sa.Double(), nullable=True),
        sa.Column("comp_half", sa.Double(), nullable=True),
        sa.Column("paper_flops_mean", sa.Double(), nullable=True),
        sa.Column("paper_flops_half", sa.Double(), nullable=True),
        sa.Column("final_error_mean", sa.Double(), nullable=True),
        sa.Column("final_error_half", sa.Double(), nullable=True),
        sa.Column("seconds_mean", sa.Double(), nullable=True),
        sa.Column("seconds_half", sa.Double(), nullable=True),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("verified_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_results_submission_id_submissions"),
        sa.PrimaryKeyConstraint("id", name="pk_results"),
        sa.UniqueConstraint("submission_id", name="uq_results_submission_id"),
    )
    op.create_index(
        "ix_results_board_budget", "results", ["env_id", "rules_version", "published", "budget_class", "cer_mean"]
    )
    op.create_index(
        "ix_results_board_wait", "results", ["env_id", "rules_version", "published", "waiting_time", "cer_mean"]
    )
    op.create_index(
        "ix_results_filters",
        "results",
        ["published", "env_id", "rules_version", "method", "budget_class", "waiting_time"],
    )
    op.create_index(
        "ix_results_board_cer", "results", ["env_id", "rules_version", "published", "cer_mean", "submission_id"]
    )
    op.create_index(
        "ix_results_board_comp", "results", ["env_id", "rules_version", "published", "comp_mean", "submission_id"]
    )
    op.create_index(
        "ix_results_board_final_error",
        "results",
        ["env_id", "rules_version", "published", "final_error_mean", "submission_id"],
    )
    op.create_index(
        "ix_results_board_mem", "results", ["env_id", "rules_version", "published", "mem_mean", "submission_id"]
    )
    op.create_index(
        "ix_results_board_method", "results", ["env_id", "rules_version", "published", "method", "cer_mean"]
    )
    op.create_index(
        "ix_results_board_paper_flops",
        "results",
        ["env_id", "rules_version", "published", "paper_flops_mean", "submission_id"],
    )
    op.create_index(
        "ix_results_board_seconds", "results", ["env_id", "rules_version", "published", "seconds_mean", "submission_id"]
    )

    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("result_id", sa.Integer(), nullable=False),
        sa.Column("severity", sa.String(length=20), nullable=False),
        sa.Column("code", sa.String(length=80), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name="fk_findings_result_id_results"),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
    )
    op.create_index("ix_findings_result_id", "findings", ["result_id"])

    op.create_table(
        "result_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("result_id", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("cer", sa.Double(), nullable=False),
        sa.Column("mem", WHOLE, nullable=False),
        sa.Column("comp", WHOLE, nullable=False),
        sa.Column("paper_flops", WHOLE, nullable=False),
        sa.Column("final_error", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("ledger", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name="fk_result_runs_result_id_results"),
        sa.PrimaryKeyConstraint("id", name="pk_result_runs"),
        sa.UniqueConstraint("result_id", "seed", name="uq_result_runs_result_id_seed"),
    )


def downgrade() -> None:
    """Downgrade to the previous version."""
    op.drop_table("result_runs")
    op.drop_table("findings")
    op.drop_table("results")
    op.drop_table("jobs")
    op.drop_table("events")
    op.drop_table("tokens")
    op.drop_table("submissions")
    op.drop_table("accounts")
