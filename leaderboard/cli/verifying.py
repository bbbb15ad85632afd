"""``verify`` and ``worker``: running submissions again."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.table import Table

from leaderboard import check
from leaderboard.cli.common import Commands, add_database, database_url, opened, print_report, say

if TYPE_CHECKING:
    from leaderboard.verification import Verify

DEFAULT_VERIFY = "leaderboard.verify:verify"


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    verifying = commands.add_parser("verify", help="run a submission again, in isolation, and print what comes out")
    verifying.set_defaults(command=_verify)
    verifying.add_argument("what", help="a folder, a zip of it, or the number of a submission in the database")
    verifying.add_argument("--wall-seconds", type=float, help="after which a run is ended, default 6 hours")
    verifying.add_argument(
        "--allow-limited", action="store_true", help="where there is no isolation, make do with limits alone"
    )
    add_database(verifying)

    worker = commands.add_parser("worker", help="verify what is queued, until it is stopped")
    worker.set_defaults(command=_worker)
    add_verify(worker)
    worker.add_argument("--worker-name", help="as it appears in the log of events; default: machine and process")
    worker.add_argument(
        "--lease", type=float, default=60.0, help="seconds after which a dead worker's job is another's"
    )
    worker.add_argument("--until-empty", action="store_true", help="end when nothing is queued")
    # By which a worker ends with the server that started it, however that ends.
    worker.add_argument("--while-input-is-open", action="store_true", help=argparse.SUPPRESS)
    add_database(worker)


def add_verify(command: argparse.ArgumentParser) -> None:
    """``--verify``."""
    command.add_argument(
        "--verify",
        default=DEFAULT_VERIFY,
        metavar="MODULE:FUNCTION",
        help="what runs a submission again, as Python imports it; default: the sandbox of this project",
    )


def _verify(options: argparse.Namespace, console: Console) -> int:
    from leaderboard.sandbox import Limits
    from leaderboard.verify import verify

    if options.what.isdecimal():
        with opened(options) as engine:
            from sqlalchemy.orm import Session

            from leaderboard.submissions import package_of

            with Session(engine) as session:
                report = check.check(package_of(session, int(options.what)))
    else:
        report = check.check_path(Path(options.what))
    print_report(report, console)
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
        say(console, f"{finding.severity} ({finding.code}){where} {finding.text}")
    say(
        console,
        f"{report.manifest.name}: {len(found.runs)} runs, {found.environment['isolation']}; worst: {found.worst}",
    )
    return 0 if found.worst == "info" else 1


def _worker(options: argparse.Namespace, console: Console) -> int:
    verify = load_verify(options.verify)
    url = database_url(options)
    from leaderboard.worker import work

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if options.lease < 1:
        raise ValueError(
            f"--lease {options.lease}: a lease is renewed three times before it ends; give 1 second or more"
        )
    if options.while_input_is_open:
        threading.Thread(target=_end_with_input, daemon=True).start()
    done = work(url, verify, name=options.worker_name, lease_seconds=options.lease, until_empty=options.until_empty)
    say(console, f"{done} submissions verified")
    return 0


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


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
