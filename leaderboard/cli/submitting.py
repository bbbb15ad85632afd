"""``init``, ``check``, ``submit``, ``status`` and ``export``: for who takes part."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from leaderboard import check, template
from leaderboard.cli.common import Commands, add_board, connected, opened, print_report, say
from leaderboard.rules import RULES_VERSION, TICKS


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    init = commands.add_parser("init", help="write a submission that works, to begin with")
    init.set_defaults(command=_init)
    init.add_argument("folder", type=Path, help="a new folder")

    checking = commands.add_parser("check", help="everything that can be said of a submission without running it")
    checking.set_defaults(command=_check)
    checking.add_argument("path", type=Path, help="a folder, or a zip of it")

    submit = commands.add_parser("submit", help="check a submission and queue its verification")
    submit.set_defaults(command=_submit)
    submit.add_argument("path", type=Path, help="a folder, or a zip of it")
    submit.add_argument("--account", default="local", help="name of who sends it, without --url; default local")
    submit.add_argument("--wait", action="store_true", help="wait until it is verified; with --url")

    status = commands.add_parser("status", help="what became of a submission, or of the latest ones")
    status.set_defaults(command=_status)
    status.add_argument("id", type=int, nargs="?", help="number of a submission")
    status.add_argument("--latest", type=int, default=20, help="how many to list without a number, default 20")

    export = commands.add_parser("export", help="write the standings into a file")
    export.set_defaults(command=_export)
    export.add_argument("file", type=Path, help="to write: .csv, .json or .parquet")
    export.add_argument("--env", required=True, choices=list(TICKS), help="id of the environment")
    export.add_argument("--rules", default=RULES_VERSION, help=f"version of the rules, default {RULES_VERSION}")
    export.add_argument("--runs", action="store_true", help="one line per verified run instead of one per submission")

    for command in (submit, status, export):
        add_board(command)


def _init(options: argparse.Namespace, console: Console) -> int:
    for file in template.init(options.folder):
        say(console, str(file))
    say(console, f"Now edit both, and run: alma-leaderboard check {options.folder}")
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    report = check.check_path(options.path)
    print_report(report, console)
    if not report.ok:
        return 1
    assert report.manifest is not None
    assert report.package is not None
    claims = f", claims for {len(report.claims)} seeds" if report.claims else ""
    say(console, f"fine: {report.manifest.name}, {report.manifest.env}, {len(report.manifest.seeds)} seeds{claims}")
    say(console, f"digest {report.package.digest}")
    return 0


def _submit(options: argparse.Namespace, console: Console) -> int:
    report = check.check_path(options.path)
    print_report(report, console)
    if not report.ok:
        return 1
    assert report.package is not None
    if options.url:
        with connected(options) as board:
            made = board.submit(report.package)
            _say_sent(console, made.id, made.state, made.new)
            if not options.wait:
                return 0
            with console.status(made.state) as shown:
                ended = board.wait(made.id, progress=lambda one: shown.update(escape(one.progress or one.state)))
        from leaderboard.status import lines_of

        for line in lines_of(ended):
            say(console, line)
        return 0 if ended.state == "verified" else 1
    with opened(options) as engine:
        from leaderboard.submissions import submit

        made = submit(engine, report.package, options.account)
    _say_sent(console, made.id, made.state, made.new)
    return 0


def _say_sent(console: Console, id: int, state: str, new: bool) -> None:
    say(console, f"submission {id}: {state}" + ("" if new else " (these files were sent before)"))


def _status(options: argparse.Namespace, console: Console) -> int:
    from leaderboard import status

    if options.id is None and options.latest < 1:
        raise ValueError(f"--latest {options.latest}: give 1 or more")
    rows: list[tuple[str, ...]] = []
    lines: list[str] = []
    if options.url:
        with connected(options) as board:
            if options.id is None:
                rows = [status.columns(sent) for sent in board.recent(limit=min(options.latest, 200))]
            else:
                lines = status.lines_of(board.status(options.id))
    else:
        with opened(options) as engine:
            if options.id is None:
                rows = status.latest(engine, options.latest)
            else:
                lines = status.describe(engine, options.id)
    if options.id is None:
        table = Table("id", "state", "env", "name", "method", "sent", "progress", box=None)
        for columns in rows:
            table.add_row(*map(escape, columns))
        console.print(table)
    for line in lines:
        say(console, line)
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    if options.url:
        with connected(options) as board:
            format = options.file.suffix.removeprefix(".")
            options.file.write_bytes(board.export(options.env, options.rules, format=format, runs=options.runs))
        say(console, f"{options.file}: written")
        return 0
    with opened(options) as engine:
        from leaderboard import export

        records = (export.runs if options.runs else export.submissions)(engine, options.env, options.rules)
        export.write(records, options.file)
    say(console, f"{options.file}: {len(records)} lines")
    return 0
