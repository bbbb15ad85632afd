"""The ``alma-leaderboard`` command: begin a submission, check it, send it, verify what was sent, look and download."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import alma_env
from alma_env import AlmaError
from leaderboard import check, template
from leaderboard.rules import RULES_VERSION, TICKS

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from leaderboard.verification import Verify

# What needs a database is imported where it is used: a submission is begun and checked without the extra `web`.

DATABASE_VARIABLE = "ALMA_LEADERBOARD_DATABASE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``alma-leaderboard``; the exit status: 0, 1 for a submission with errors, 2 for a mistake."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        status: int = options.command(options, console)
        return status
    except (AlmaError, ValueError, LookupError) as error:
        return _refuse(options, str(error))
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("sqlalchemy", "alembic", "psycopg", "pyarrow"):
            raise
        return _refuse(options, f"the package {error.name} is missing; pip install 'alma-env[web]'")
    except OSError as error:
        return _refuse(options, f"{error.filename or 'a file'}: {error.strerror or error}; choose another place")
    except KeyboardInterrupt:
        return 130


def _refuse(options: argparse.Namespace, message: str) -> int:
    console = Console(stderr=True)
    console.print(f"[bold red]alma-leaderboard {options.name}:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="alma-leaderboard", description="The leaderboard of alma-env.")
    version = f"alma-env {alma_env.__version__}, rules {RULES_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="name", required=True)

    init = commands.add_parser("init", help="write a submission that works, to begin with")
    init.set_defaults(command=_init)
    init.add_argument("folder", type=Path, help="a new folder")

    checking = commands.add_parser("check", help="everything that can be said of a submission without running it")
    checking.set_defaults(command=_check)
    checking.add_argument("path", type=Path, help="a folder, or a zip of it")

    submit = commands.add_parser("submit", help="check a submission and queue its verification")
    submit.set_defaults(command=_submit)
    submit.add_argument("path", type=Path, help="a folder, or a zip of it")
    submit.add_argument("--account", default="local", help="name of who sends it, default local")

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

    verifying = commands.add_parser("verify", help="run a submission again, in isolation, and print what comes out")
    verifying.set_defaults(command=_verify)
    verifying.add_argument("what", help="a folder, a zip of it, or the number of a submission in the database")
    verifying.add_argument("--wall-seconds", type=float, help="after which a run is ended, default 6 hours")
    verifying.add_argument(
        "--allow-limited", action="store_true", help="where there is no isolation, make do with limits alone"
    )

    worker = commands.add_parser("worker", help="verify what is queued, until it is stopped")
    worker.set_defaults(command=_worker)
    worker.add_argument(
        "--verify",
        default="leaderboard.verify:verify",
        metavar="MODULE:FUNCTION",
        help="what runs a submission again, as Python imports it; default: the sandbox of this project",
    )
    worker.add_argument("--worker-name", help="as it appears in the log of events; default: machine and process")
    worker.add_argument(
        "--lease", type=float, default=60.0, help="seconds after which a dead worker's job is another's"
    )
    worker.add_argument("--until-empty", action="store_true", help="end when nothing is queued")

    retry = commands.add_parser("retry", help="queue a failed verification again")
    retry.set_defaults(command=_retry)
    retry.add_argument("id", type=int, help="number of the submission")

    upgrade = commands.add_parser("upgrade", help="bring the database's tables up to date; stop workers first")
    upgrade.set_defaults(command=_upgrade)

    for command in (submit, status, export, worker, retry, upgrade):
        command.add_argument(
            "--database",
            metavar="URL",
            default=os.environ.get(DATABASE_VARIABLE),
            help=f"such as sqlite:///board.db or postgresql://user@host/board; default: ${DATABASE_VARIABLE}",
        )
    return parser


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def _init(options: argparse.Namespace, console: Console) -> int:
    for file in template.init(options.folder):
        _say(console, str(file))
    _say(console, f"Now edit both, and run: alma-leaderboard check {options.folder}")
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    report = check.check_path(options.path)
    _print_report(report, console)
    if not report.ok:
        return 1
    assert report.manifest is not None
    assert report.package is not None
    claims = f", claims for {len(report.claims)} seeds" if report.claims else ""
    _say(console, f"fine: {report.manifest.name}, {report.manifest.env}, {len(report.manifest.seeds)} seeds{claims}")
    _say(console, f"digest {report.package.digest}")
    return 0


def _print_report(report: check.Report, console: Console) -> None:
    for message in report.errors:
        console.print(f"[bold red]error[/] {escape(message)}", highlight=False, soft_wrap=True)
    for message in report.warnings:
        console.print(f"[yellow]warning[/] {escape(message)}", highlight=False, soft_wrap=True)


def _url(options: argparse.Namespace) -> str:
    if not options.database:
        raise ValueError(f"no database; give --database sqlite:///board.db, or set {DATABASE_VARIABLE}")
    return str(options.database)


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[Engine]:
    url = _url(options)
    from leaderboard.migrations import open_database

    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _submit(options: argparse.Namespace, console: Console) -> int:
    report = check.check_path(options.path)
    _print_report(report, console)
    if not report.ok:
        return 1
    assert report.package is not None
    with _opened(options) as engine:
        from leaderboard.submissions import submit

        made = submit(engine, report.package, options.account)
    _say(console, f"submission {made.id}: {made.state}" + ("" if made.new else " (these files were sent before)"))
    return 0


def _status(options: argparse.Namespace, console: Console) -> int:
    with _opened(options) as engine:
        from leaderboard import status

        if options.id is None:
            table = Table("id", "state", "env", "name", "method", "sent", "progress", box=None)
            for columns in status.latest(engine, options.latest):
                table.add_row(*map(escape, columns))
            console.print(table)
        else:
            for line in status.describe(engine, options.id):
                _say(console, line)
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    with _opened(options) as engine:
        from leaderboard import export

        records = (export.runs if options.runs else export.submissions)(engine, options.env, options.rules)
        export.write(records, options.file)
    _say(console, f"{options.file}: {len(records)} lines")
    return 0


def _verify(options: argparse.Namespace, console: Console) -> int:
    from leaderboard.sandbox import Limits
    from leaderboard.verify import verify

    if options.what.isdecimal():
        with _opened(options) as engine:
            from sqlalchemy.orm import Session

            from leaderboard.submissions import package_of

            with Session(engine) as session:
                report = check.check(package_of(session, int(options.what)))
    else:
        report = check.check_path(Path(options.what))
    _print_report(report, console)
    if not report.ok:
        return 1
    assert report.manifest is not None
    assert report.package is not None
    limits = Limits() if options.wall_seconds is None else Limits(wall_seconds=options.wall_seconds)
    with console.status("") as shown:
        found = verify(
            report.package, report.manifest, shown.update, limits=limits, allow_limited=options.allow_limited
        )
    table = Table("seed", "CER", "final error", "Mem", "Comp", "paper", box=None)
    for run in found.runs:
        score = run.ledger.score()
        numbers = (f"{score.cer:.2f}", f"{score.final_error:.3f}", *map("{:,}".format, (score.mem, score.comp)))
        table.add_row(str(run.seed), *numbers, f"{score.paper_flops:,}")
    console.print(table)
    for finding in found.findings:
        where = "" if finding.seed is None else f" seed {finding.seed}:"
        _say(console, f"{finding.severity} ({finding.code}){where} {finding.text}")
    _say(
        console,
        f"{report.manifest.name}: {len(found.runs)} runs, {found.environment['isolation']}; worst: {found.worst}",
    )
    return 0 if found.worst == "info" else 1


def _worker(options: argparse.Namespace, console: Console) -> int:
    verify = load_verify(options.verify)
    url = _url(options)
    from leaderboard.worker import work

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if options.lease < 1:
        raise ValueError(
            f"--lease {options.lease}: a lease is renewed three times before it ends; give 1 second or more"
        )
    done = work(url, verify, name=options.worker_name, lease_seconds=options.lease, until_empty=options.until_empty)
    _say(console, f"{done} submissions verified")
    return 0


def load_verify(spec: str) -> Verify:
    """The function of ``MODULE:FUNCTION``.

    Raises:
        ValueError: it is no such thing.
    """
    module, colon, name = spec.partition(":")
    remedy = "write MODULE:FUNCTION, as in my_board.verify:verify, of a module that Python finds"
    if not (module and colon and name):
        raise ValueError(f"--verify {spec}: {remedy}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--verify {spec}: {error}; {remedy}") from error
    if not callable(found):
        raise ValueError(f"--verify {spec}: {name} is no function; {remedy}")
    return cast("Verify", found)


def _retry(options: argparse.Namespace, console: Console) -> int:
    with _opened(options) as engine:
        from leaderboard import queue

        queue.retry(engine, options.id)
    _say(console, f"submission {options.id}: queued")
    return 0


def _upgrade(options: argparse.Namespace, console: Console) -> int:
    url = _url(options)
    from leaderboard.migrations import head, upgrade

    upgrade(url)
    _say(console, f"tables of version {head()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
