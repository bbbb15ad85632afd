"""Sessions of the web page: tokens that were made from another token and end with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade to this version."""
    with op.batch_alter_table("tokens") as table:
        table.add_column(sa.Column("parent_id", sa.Integer(), nullable=True))
        table.create_foreign_key("fk_tokens_parent_id_tokens", "tokens", ["parent_id"], ["id"])
        table.create_index("ix_tokens_parent_id", ["parent_id"])


def downgrade() -> None:
    """Downgrade to the previous version. Sessions are deleted, because without their column they would be tokens."""
    op.execute("DELETE FROM tokens WHERE parent_id IS NOT NULL")
    with op.batch_alter_table("tokens") as table:
        table.drop_index("ix_tokens_parent_id")
        table.drop_constraint("fk_tokens_parent_id_tokens", type_="foreignkey")
        table.drop_column("parent_id")
