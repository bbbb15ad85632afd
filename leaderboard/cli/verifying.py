"""The commands that execute submissions: ``verify`` and ``worker``."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.table import Table

from leaderboard.cli.common import (
    Commands,
    add_command,
    add_database,
    id_number,
    opened,
    print_report,
    say,
    start_logging,
)
from leaderboard.submission import static_check

if TYPE_CHECKING:
    from leaderboard.verification.result import Verifier

DEFAULT_VERIFY = "leaderboard.verification.verify:verify"


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    verifying = add_command(commands, "verify", _verify, "run a submission in isolation, and print scores and findings")
    verifying.add_argument("what", type=_what, help="a folder, a zip of it, or the id of a submission in the database")
    verifying.add_argument("--wall-seconds", type=float, help="time limit of a run, default 6 hours")
    verifying.add_argument(
        "--allow-limited", action="store_true", help="run with limits only if isolation is not available"
    )
    add_database(verifying)

    worker = add_command(commands, "worker", _worker, "verify queued submissions until stopped")
    add_verify(worker)
    worker.add_argument("--worker-name", help="name in the audit log; default: machine and process")
    worker.add_argument(
        "--lease", type=float, default=60.0, help="seconds until the job of a dead worker is queued again"
    )
    worker.add_argument("--until-empty", action="store_true", help="end when the queue is empty")
    # With this option a worker ends when the server that started it ends, even if the server is killed.
    worker.add_argument("--while-input-is-open", action="store_true", help=argparse.SUPPRESS)
    add_database(worker)


def _what(text: str) -> int | Path:
    return id_number(text) if text.isdecimal() else Path(text)


def add_verify(command: argparse.ArgumentParser) -> None:
    """Add the option ``--verify``."""
    command.add_argument(
        "--verify",
        default=DEFAULT_VERIFY,
        metavar="MODULE:FUNCTION",
        help="function that verifies a submission; default: the sandbox of this project",
    )


def _verify(options: argparse.Namespace, console: Console) -> int:
    from leaderboard.sandbox.sandbox import Limits
    from leaderboard.verification.verify import verify

    if isinstance(options.what, int):
        with opened(options) as engine:
            from leaderboard.board.submissions import package_of
            from leaderboard.database.engine import reading

            with reading(engine) as session:
                report = static_check.check(package_of(session, options.what))
    elif options.database is not None:
        raise ValueError(f"--database with {options.what}: a database has numbers of submissions; leave --database out")
    else:
        report = static_check.check_path(options.what)
    read = print_report(report, console)
    if read is None:
        return 1
    manifest, package = read
    limits = Limits() if options.wall_seconds is None else Limits(wall_seconds=options.wall_seconds)
    with console.status("") as shown:
        found = verify(package, manifest, shown.update, limits=limits, allow_limited=options.allow_limited)
    table = Table("seed", "CER", "final error", "Mem", "Comp", "paper", box=None)
    for run in found.runs:
        score = run.ledger.score()
        numbers = (f"{score.cer:.2f}", f"{score.final_error:.3f}", *map("{:,}".format, (score.mem, score.comp)))
        table.add_row(str(run.seed), *numbers, f"{score.paper_flops:,}")
    console.print(table)
    for finding in found.findings:
        where = "" if finding.seed is None else f" seed {finding.seed}:"
        say(console, f"{finding.severity} ({finding.code}){where} {finding.text}")
    isolation = found.environment["isolation"]
    say(console, f"{manifest.name}: {len(found.runs)} runs, {isolation}; worst: {found.worst}")
    return 0 if found.worst == "info" else 1


def _worker(options: argparse.Namespace, console: Console) -> int:
    verify = load_verify(options.verify)
    start_logging()
    if not 1 <= options.lease <= 86_400:  # refuses nan, too
        raise ValueError(f"--lease {options.lease}: must be 1 to 86400 seconds; use --lease 60")
    if options.while_input_is_open:
        threading.Thread(target=_end_with_input, daemon=True).start()
    # A server gives its worker the database that the server has opened. A person may mistype the name.
    with opened(options, new=options.while_input_is_open) as engine:
        from leaderboard.board.worker import work

        done = work(
            engine, verify, name=options.worker_name, lease_seconds=options.lease, until_empty=options.until_empty
        )
    say(console, f"{done} submissions verified")
    return 0


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def load_verify(spec: str) -> Verifier:
    """Import the function of ``MODULE:FUNCTION``.

    Raises:
        ValueError: the text has another form, or names no function.
    """
    module, colon, name = spec.partition(":")
    remedy = "write MODULE:FUNCTION, such as my_board.verify:verify, of a module that Python can import"
    if not (module and colon and name):
        raise ValueError(f"--verify {spec}: must name a module and a function; {remedy}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--verify {spec}: {error}; {remedy}") from error
    if not callable(found):
        raise ValueError(f"--verify {spec}: {name} is not a function; {remedy}")
    return cast("Verifier", found)
