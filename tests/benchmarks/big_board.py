"""A board of 10,000 synthetic submissions, for benchmarks of the pages and queries."""

from __future__ import annotations

import random
import zlib
from datetime import UTC, datetime

import numpy as np

SUBMISSIONS = 10_000
WITH_LEDGERS = 100  # submissions with ledgers, whose pages can be requested
ENV = "MNIST-ALMA-v0"


def ledger(numbers: random.Random):
    from alma_env import Ledger, Row
    from leaderboard.rules import TICKS

    return Ledger(
        [
            Row(tick, numbers.random(), 1000, 0, 1.0, {"training": 10**6} if tick else {}, 9, (), "", False, 0.1)
            for tick in range(TICKS[ENV] + 1)
        ]
    )


def fill(engine) -> None:
    """Write 10,000 verified submissions in a few large statements; the first 100 have runs with ledgers."""
    from sqlalchemy import insert

    from leaderboard.database.engine import writing
    from leaderboard.database.tables import METRICS, Account, Event, Result, ResultRun, Submission
    from leaderboard.rules import RULES_VERSION, budget_class

    numbers, moment = random.Random(0), datetime.now(UTC)
    submissions, results, runs = [], [], []
    for id in range(1, SUBMISSIONS + 1):
        method, wait = numbers.choice(["sm", "ens", "gmoe", "ff"]), numbers.choice([1, 10, 50, None])
        comp, mem = 10 ** numbers.uniform(9, 14), 10 ** numbers.uniform(5, 9)
        shared = {"env_id": ENV, "rules_version": RULES_VERSION, "method": method, "waiting_time": wait}
        manifest = {
            "name": f"submission {id}",
            "authors": ["Ada", "Bob"],
            "env": ENV,
            "seeds": [0, 1, 2],
            "method": method,
            "description": "d" * 1000,
        }
        submissions.append(
            shared
            | {
                "id": id,
                "account_id": 1,
                "digest": f"{id:064d}",
                "name": manifest["name"],
                "manifest": manifest,
                "package": bytes(5_000),
                "package_bytes": 5_000,
                "state": "verified",
                "created_at": moment,
            }
        )
        # A higher Comp gives a lower CER, with a wide spread, so the Pareto front has some dozens of submissions.
        means = {f"{metric}_mean": numbers.uniform(1, 100) for metric in METRICS} | {"comp_mean": comp, "mem_mean": mem}
        means["cer_mean"] = 20 + 300 * numbers.betavariate(2, 4) * (15 - np.log10(comp)) / 6
        results.append(
            shared
            | {
                "id": id,
                "submission_id": id,
                "budget_class": budget_class(comp),
                "published": True,
                "flagged": False,
                "seeds": 3,
                "environment": {"torch": "2"},
                "worker": "w",
                "verified_at": moment,
                **means,
                **{f"{metric}_half": 1.0 for metric in METRICS},
            }
        )
        if id <= WITH_LEDGERS:
            for seed in range(3):
                verified = ledger(numbers)
                score = verified.score()
                runs.append(
                    {"result_id": id, "seed": seed, "ledger": zlib.compress(verified.to_json().encode())}
                    | {metric: getattr(score, metric) for metric in METRICS}
                )
    with writing(engine) as session:
        session.execute(insert(Account), [{"id": 1, "name": "Ada", "role": "submitter", "created_at": moment}])
        session.execute(insert(Submission), submissions)
        session.execute(insert(Result), results)
        session.execute(insert(ResultRun), runs)
        session.execute(
            insert(Event), [{"at": moment, "kind": "verified", "submission_id": row["id"]} for row in submissions]
        )
