"""The commands of participants: ``init``, ``check``, ``submit``, ``status`` and ``export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard.accounts.names import LOCAL_ACCOUNT
from leaderboard.cli.common import Commands, add_board, add_command, connected, id_number, opened, print_report, say
from leaderboard.rules import RULES_VERSION, TICKS
from leaderboard.submission import static_check, template

if TYPE_CHECKING:
    from leaderboard.board.submissions import Submitted


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    init = add_command(commands, "init", _init, "write the template of a submission, which works")
    init.add_argument("folder", type=Path, help="a new folder")

    checking = add_command(commands, "check", _check, "check a submission without executing it")
    checking.add_argument("path", type=Path, help="a folder, or a zip of it")

    submit = add_command(commands, "submit", _submit, "check a submission and queue its verification")
    submit.add_argument("path", type=Path, help="a folder, or a zip of it")
    submit.add_argument("--account", help=f"name of the account, for --database; default {LOCAL_ACCOUNT}")
    submit.add_argument("--wait", action="store_true", help="wait until the submission is verified; for --url")

    status = add_command(commands, "status", _status, "show a submission, or list the latest ones")
    status.add_argument("id", type=id_number, nargs="?", help="id of a submission")
    status.add_argument("--latest", type=int, help="length of the list, 1 to 200, default 20")

    export = add_command(commands, "export", _export, "write the standings to a file")
    export.add_argument("file", type=Path, help="path that ends with .csv, .json or .parquet")
    export.add_argument("--env", required=True, choices=list(TICKS), help="id of the environment")
    export.add_argument("--rules", default=RULES_VERSION, help=f"version of the rules, default {RULES_VERSION}")
    export.add_argument("--runs", action="store_true", help="one row per verified run instead of one per submission")

    for command in (submit, status, export):
        add_board(command)


def _init(options: argparse.Namespace, console: Console) -> int:
    for file in template.init(options.folder):
        say(console, str(file))
    say(console, f"Edit both files, then run: alma-leaderboard check {options.folder}")
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    report = static_check.check_path(options.path)
    read = print_report(report, console)
    if read is None:
        return 1
    manifest, package = read
    claims = f", claimed ledgers of {len(report.claims)} seeds" if report.claims else ""
    say(console, f"valid: {manifest.name}, {manifest.env}, {len(manifest.seeds)} seeds{claims}")
    say(console, f"digest {package.digest}")
    return 0


def _submit(options: argparse.Namespace, console: Console) -> int:
    if options.wait and not options.url:
        raise ValueError("--wait: works only with --url; leave it out, and ask with `alma-leaderboard status ID`")
    read = print_report(static_check.check_path(options.path), console)
    if read is None:
        return 1
    _, package = read
    if options.url:
        with connected(options) as board:
            sent = board.submit(package)
            _print_sent(console, sent)
            if not options.wait:
                return 0
            with console.status(sent.state) as shown:
                ended = board.wait(sent.id, progress=lambda now: shown.update(escape(now.progress or now.state)))
        for line in ended.lines():
            say(console, line)
        return 0 if ended.state == "verified" else 1
    with opened(options, new=True) as engine:
        from leaderboard.board.submissions import submit

        sent = submit(engine, package, options.account or LOCAL_ACCOUNT)
    _print_sent(console, sent)
    return 0


def _print_sent(console: Console, sent: Submitted) -> None:
    say(console, f"submission {sent.id}: {sent.state}" + ("" if sent.new else " (these files were sent before)"))


def _status(options: argparse.Namespace, console: Console) -> int:
    from leaderboard.board.listing import LONGEST_PAGE, list_submissions

    latest = 20 if options.latest is None else options.latest
    if options.id is not None and options.latest is not None:
        raise ValueError(
            f"--latest {latest} with submission {options.id}: only the list has a length; leave --latest out"
        )
    if not 1 <= latest <= LONGEST_PAGE:
        raise ValueError(f"--latest {latest}: must be 1 to {LONGEST_PAGE}; use --latest {LONGEST_PAGE}")
    rows: list[tuple[str, ...]] = []
    lines: list[str] = []
    if options.url:
        with connected(options) as board:
            if options.id is None:
                rows = [one.columns() for one in board.recent(limit=latest)]
            else:
                lines = board.status(options.id).lines()
    else:
        with opened(options) as engine:
            from leaderboard.board.details import details

            if options.id is None:
                page = list_submissions(engine, limit=latest)
                rows = [one.columns() for one in page.lines]
                lines = [f"submission {id}: damaged in the database, not shown" for id in page.damaged]
            else:
                lines = details(engine, options.id).lines()
    if options.id is None:
        table = Table("id", "state", "env", "name", "method", "sent (UTC)", "progress", box=None)
        for columns in rows:
            table.add_row(*map(escape, columns))
        console.print(table)
    for line in lines:
        say(console, line)
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    from leaderboard.board import export

    format = export.format_of(options.file)
    if options.url:
        with connected(options) as board:
            options.file.write_bytes(board.export(options.env, options.rules, format=format, runs=options.runs))
        say(console, f"{options.file}: written")
        return 0
    with opened(options) as engine:
        records = (export.runs if options.runs else export.submissions)(engine, options.env, options.rules)
        export.write(records, options.file, format)
    say(console, f"{options.file}: {len(records)} rows")
    return 0
