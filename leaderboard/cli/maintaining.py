"""``account``, ``token``, ``review``, ``retry``, ``baselines`` and ``upgrade``: for who maintains the board."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.cli.common import Commands, add_board, add_database, connected, database_url, opened, say


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    _add_account(commands)
    _add_token(commands)

    review = commands.add_parser("review", help="put a result on the board, or take it off, and say why")
    review.set_defaults(command=_review)
    review.add_argument("id", type=int, help="number of the submission")
    decision = review.add_mutually_exclusive_group(required=True)
    decision.add_argument("--accept", action="store_true", help="the standings show it")
    decision.add_argument("--reject", action="store_true", help="the standings do not")
    review.add_argument("--reason", required=True, help="everyone can read it")
    review.add_argument("--account", help="the maintainer's who decides, without --url")

    retry = commands.add_parser("retry", help="queue a failed verification again")
    retry.set_defaults(command=_retry)
    retry.add_argument("id", type=int, help="number of the submission")
    for command in (review, retry):
        add_board(command)

    baselines = commands.add_parser("baselines", help="put the project's own agents on the board, as `serve` does")
    baselines.set_defaults(command=_baselines)
    doing = baselines.add_mutually_exclusive_group()
    doing.add_argument("--queue", action="store_true", help="to be verified here, whatever results are shipped")
    doing.add_argument(
        "--record", type=Path, metavar="FILE", help="write what this board verified of them instead, to be shipped"
    )
    add_database(baselines)

    upgrade = commands.add_parser("upgrade", help="bring the database's tables up to date; stop workers first")
    upgrade.set_defaults(command=_upgrade)
    add_database(upgrade)


def _add_account(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("account", help="who may send and maintain: add, disable, enable, list")
    actions = parser.add_subparsers(dest="action", required=True)
    adding = actions.add_parser("add", help="make an account, and print its first token")
    adding.set_defaults(command=_account_add)
    adding.add_argument("account", help="its name")
    adding.add_argument("--role", choices=("submitter", "maintainer"), default="submitter")
    disable = actions.add_parser("disable", help="its tokens open nothing, what waits to be verified ends")
    disable.set_defaults(command=_account_disable, disabled=True)
    enable = actions.add_parser("enable", help="take that back")
    enable.set_defaults(command=_account_disable, disabled=False)
    for action in (disable, enable):
        action.add_argument("account", help="its name")
    listing = actions.add_parser("list", help="all accounts")
    listing.set_defaults(command=_account_list)
    for action in (adding, disable, enable, listing):
        add_database(action)


def _add_token(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("token", help="by what an account acts: make, revoke, list")
    actions = parser.add_subparsers(dest="action", required=True)
    make = actions.add_parser("make", help="make a token, and print it this once")
    make.set_defaults(command=_token_make)
    make.add_argument("account", help="name of the account")
    make.add_argument("--name", dest="token_name", default="made by hand", help="what it is called")
    make.add_argument("--scope", action="append", choices=("submit", "review", "manage"), help="may be repeated")
    make.add_argument("--days", type=float, help="after which it ends; default never")
    revoke = actions.add_parser("revoke", help="end a token, and the sessions that came from it")
    revoke.set_defaults(command=_token_revoke)
    revoke.add_argument("id", type=int, help="number of the token")
    listing = actions.add_parser("list", help="the tokens of an account")
    listing.set_defaults(command=_token_list)
    listing.add_argument("account", help="name of the account")
    for action in (make, revoke, listing):
        add_database(action)


def _account_add(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts import make_account
        from leaderboard.tokens import issue_token

        account = make_account(engine, options.account, options.role)
        token = issue_token(engine, account.id, "first token")
    say(console, f"account {account.id}: {account.name}, {account.role}")
    say(console, f"its token, shown this once: {token.secret}")
    return 0


def _account_disable(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts import find_account, set_disabled

        account = set_disabled(engine, find_account(engine, options.account).id, options.disabled)
    say(console, f"account {account.id}: {account.name}, {'disabled' if account.disabled_at else 'enabled'}")
    return 0


def _account_list(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts import list_accounts

        accounts, _ = list_accounts(engine, limit=100_000)
    table = Table("id", "name", "role", "since", "disabled", box=None)
    for one in accounts:
        disabled = "" if one.disabled_at is None else f"{one.disabled_at:%Y-%m-%d}"
        table.add_row(str(one.id), escape(one.name), one.role, f"{one.created_at:%Y-%m-%d}", disabled)
    console.print(table)
    return 0


def _token_make(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts import find_account
        from leaderboard.tokens import issue_token

        account = find_account(engine, options.account)
        token = issue_token(engine, account.id, options.token_name, scopes=options.scope, days=options.days)
    say(console, f"token {token.id} of {account.name}, for {', '.join(token.scopes)}, shown this once: {token.secret}")
    return 0


def _token_revoke(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.tokens import revoke

        revoke(engine, options.id)
    say(console, f"token {options.id}: revoked")
    return 0


def _token_list(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard.accounts import find_account
        from leaderboard.tokens import tokens_of

        tokens = tokens_of(engine, find_account(engine, options.account).id)
    table = Table("id", "name", "for", "made", "ends", "used", "revoked", box=None)
    for one in tokens:
        moments = (one.created_at, one.expires_at, one.last_used_at, one.revoked_at)
        days = ["" if moment is None else f"{moment:%Y-%m-%d}" for moment in moments]
        table.add_row(str(one.id), escape(one.name), ", ".join(one.scopes), *days)
    console.print(table)
    return 0


def _review(options: argparse.Namespace, console: Console) -> int:
    if options.url:
        with connected(options) as board:
            board.decide(options.id, accept=options.accept, reason=options.reason)
    else:
        if not options.account:
            raise ValueError("--account: missing; a decision is logged with who made it, so give a maintainer's name")
        with opened(options) as engine:
            from leaderboard.review import decide

            decide(engine, options.id, options.account, accept=options.accept, reason=options.reason)
    say(console, f"submission {options.id}: {'on the board' if options.accept else 'rejected'}")
    return 0


def _retry(options: argparse.Namespace, console: Console) -> int:
    if options.url:
        with connected(options) as board:
            board.retry(options.id)
    else:
        with opened(options) as engine:
            from leaderboard import queue

            queue.retry(engine, options.id)
    say(console, f"submission {options.id}: queued")
    return 0


def _baselines(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as engine:
        from leaderboard import baselines

        if options.record is not None:
            say(console, f"{options.record}: {baselines.record(engine, options.record)} results")
        else:
            adopted, queued = baselines.install(engine, results=b"" if options.queue else None)
            say(console, f"{adopted} baselines have their shipped results now, {queued} are queued")
    return 0


def _upgrade(options: argparse.Namespace, console: Console) -> int:
    url = database_url(options)
    from leaderboard.migrations import head, upgrade

    upgrade(url)
    say(console, f"tables of version {head()}")
    return 0
