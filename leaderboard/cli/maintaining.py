"""The commands of maintainers: ``account``, ``token``, ``review``, ``retry``, ``baselines`` and ``upgrade``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.cli.common import (
    Commands,
    add_board,
    add_command,
    add_database,
    connected,
    database_url,
    id_number,
    opened,
    say,
)


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    _add_account(commands)
    _add_token(commands)

    review = add_command(commands, "review", _review, "accept or reject a result, with a reason")
    review.add_argument("id", type=id_number, help="id of the submission")
    decision = review.add_mutually_exclusive_group(required=True)
    decision.add_argument("--accept", action="store_true", help="show the result in the standings")
    decision.add_argument("--reject", action="store_true", help="hide the result from the standings")
    review.add_argument("--reason", required=True, help="reason of the decision, visible to everyone")
    review.add_argument("--account", help="name of the maintainer who decides, for --database")

    retry = add_command(commands, "retry", _retry, "queue a failed verification again, or one with a failed run")
    retry.add_argument("id", type=id_number, help="id of the submission")
    for command in (review, retry):
        add_board(command)

    baselines = add_command(
        commands, "baselines", _baselines, "add the project's own agents to the board, as `serve` does"
    )
    action = baselines.add_mutually_exclusive_group()
    action.add_argument("--queue", action="store_true", help="queue them for verification, without shipped results")
    action.add_argument("--record", type=Path, metavar="FILE", help="write their verified results to a file instead")
    add_database(baselines)

    upgrade = add_command(commands, "upgrade", _upgrade, "upgrade the tables of the database; stop the workers first")
    add_database(upgrade)


def _add_account(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("account", help="add, disable, enable or list accounts")
    actions = parser.add_subparsers(dest="action", required=True)
    adding = add_command(actions, "add", _account_add, "create an account, and print its first token")
    adding.add_argument("account", help="name of the account")
    adding.add_argument("--role", choices=("submitter", "maintainer"), default="submitter")
    disable = add_command(
        actions, "disable", _account_disable, "refuse its tokens, and end its jobs at their next step", disabled=True
    )
    enable = add_command(actions, "enable", _account_disable, "accept the tokens of an account again", disabled=False)
    for action in (disable, enable):
        action.add_argument("account", help="name of the account")
    listing = add_command(actions, "list", _account_list, "list all accounts")
    for action in (adding, disable, enable, listing):
        add_database(action)


def _add_token(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("token", help="make, revoke or list the tokens of an account")
    actions = parser.add_subparsers(dest="action", required=True)
    make = add_command(actions, "make", _token_make, "create a token, and print it once")
    make.add_argument("account", help="name of the account")
    make.add_argument("--name", dest="token_name", default="made by hand", help="name of the token")
    make.add_argument(
        "--scope",
        action="append",
        choices=("submit", "review", "manage"),
        help="can be repeated; default all of the role",
    )
    make.add_argument("--days", type=float, help="days until the token ends; default never")
    revoke = add_command(actions, "revoke", _token_revoke, "end a token and its sessions")
    revoke.add_argument("id", type=id_number, help="id of the token")
    listing = add_command(actions, "list", _token_list, "list the tokens of an account")
    listing.add_argument("account", help="name of the account")
    for action in (make, revoke, listing):
        add_database(action)


def _account_add(options: argparse.Namespace, console: Console) -> int:
    with opened(options, new=True) as engine:
        from leaderboard.accounts.accounts import make_account

        account, token = make_account(engine, options.account, options.role)
    say(console, f"account {account.id}: {account.name}, {account.role}")
    say(console, f"first token, shown only now: {token.secret}")
    return 0


def _account_disable(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts.accounts import find_account, set_disabled

        account = set_disabled(engine, find_account(engine, options.account).id, options.disabled)
    say(console, f"account {account.id}: {account.name}, {'disabled' if account.disabled_at else 'enabled'}")
    return 0


def _account_list(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts.accounts import list_accounts

        accounts, _ = list_accounts(engine, limit=100_000)
    table = Table("id", "name", "role", "created", "disabled", box=None)
    for account in accounts:
        disabled = "" if account.disabled_at is None else f"{account.disabled_at:%Y-%m-%d}"
        created = f"{account.created_at:%Y-%m-%d}"
        table.add_row(str(account.id), escape(account.name), account.role, created, disabled)
    console.print(table)
    return 0


def _token_make(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts.accounts import find_account
        from leaderboard.accounts.tokens import issue_token

        account = find_account(engine, options.account)
        token = issue_token(engine, account.id, options.token_name, scopes=options.scope, days=options.days)
    scopes = ", ".join(token.scopes)
    say(console, f"token {token.id} of {account.name}, scopes {scopes}, shown only now: {token.secret}")
    return 0


def _token_revoke(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts.tokens import revoke

        revoke(engine, options.id)
    say(console, f"token {options.id}: revoked")
    return 0


def _token_list(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts.accounts import find_account
        from leaderboard.accounts.tokens import tokens_of

        tokens = tokens_of(engine, find_account(engine, options.account).id)
    table = Table("id", "name", "scopes", "created", "expires", "last used", "revoked", box=None)
    for token in tokens:
        moments = (token.created_at, token.expires_at, token.last_used_at, token.revoked_at)
        days = ["" if moment is None else f"{moment:%Y-%m-%d}" for moment in moments]
        table.add_row(str(token.id), escape(token.name), ", ".join(token.scopes), *days)
    console.print(table)
    return 0


def _review(options: argparse.Namespace, console: Console) -> int:
    if options.url:
        with connected(options) as board:
            board.decide(options.id, accept=options.accept, reason=options.reason)
    else:
        if not options.account:
            raise ValueError("--account: missing; the log records the maintainer who decides; give --account NAME")
        with opened(options) as engine:
            from leaderboard.board.results import decide

            decide(engine, options.id, options.account, accept=options.accept, reason=options.reason)
    say(console, f"submission {options.id}: {'on the board' if options.accept else 'rejected'}")
    return 0


def _retry(options: argparse.Namespace, console: Console) -> int:
    if options.url:
        with connected(options) as board:
            board.retry(options.id)
    else:
        with opened(options) as engine:
            from leaderboard.board import queue

            queue.retry(engine, options.id)
    say(console, f"submission {options.id}: queued")
    return 0


def _baselines(options: argparse.Namespace, console: Console) -> int:
    with opened(options, new=options.record is None) as engine:
        from leaderboard.board import baselines

        if options.record is not None:
            say(console, f"{options.record}: {baselines.record(engine, options.record)} results")
        else:
            adopted, queued = baselines.install(engine, results=b"" if options.queue else None)
            say(console, f"{adopted} baselines have shipped results, {queued} are queued")
    return 0


def _upgrade(options: argparse.Namespace, console: Console) -> int:
    url = database_url(options)
    from leaderboard.database.engine import require_existing
    from leaderboard.database.migrations import head, upgrade

    require_existing(url)
    upgrade(url)
    say(console, f"the tables have version {head()}")
    return 0
