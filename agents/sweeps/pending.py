"""The plan of a sweep: which runs are finished, which are pending, and whether the pending ones are valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.catalogue import own_code
from agents.catalogue.effort import expected_work
from agents.catalogue.spec import RunSpec
from agents.runs.run import config_of
from agents.sweeps import process_setup, run_index
from agents.sweeps.jobs import Environments


@dataclass(frozen=True)
class Pending:
    """A pending run, its folder if a machine like this one computes it, and its expected time relative to others."""

    spec: RunSpec
    folder: Path
    work: int


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, each once.

    Attributes:
        finished: folders of finished runs, by digest of the specification.
        pending: the other runs, by digest.
        same: digests of further specifications of these runs, each with the digest of the run.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)


def plan(specs: Sequence[RunSpec], out: Path, *, fresh: bool = False) -> Plan:
    """Find the finished runs below `out`, and create the agents of the others, one agent for all seeds.

    A specification that occurs twice counts once. With `fresh` no run counts as finished.

    Raises:
        ValueError: the number of threads breaks its rule, an environment or an agent cannot be created, or a run with
            ``record`` was started without it. The message names the run.
    """
    for spec in specs:
        process_setup.require_threads(f"{spec}: threads=", spec.threads)
    known = {} if fresh else run_index.finished_folders(out, [spec.env for spec in specs])
    planned = Plan()
    environments = Environments()
    groups: dict[str, dict[str, RunSpec]] = {}  # runs that differ only in the seed, by digest
    for spec in specs:
        digest = spec.digest()
        if digest in known and not spec.names_files:
            run_index.require_record(known[digest], spec)
            planned.finished[digest] = known[digest]
        else:
            groups.setdefault(spec.with_seed(0).digest(), {})[digest] = spec
    digests: dict[Path, str] = {}
    for group in groups.values():
        for pending in _pending_runs(list(group.values()), out, environments):
            digest = pending.spec.digest()
            if pending.folder in digests:
                planned.same[digest] = digests[pending.folder]
                continue
            digests[pending.folder] = digest
            if not fresh:
                run_index.require_record(pending.folder, pending.spec)
            if not fresh and run_index.is_finished(pending.folder):
                run_index.note_spec(pending.folder, pending.spec)
                planned.finished[digest] = pending.folder
            else:
                planned.pending[digest] = pending
    return planned


def _pending_runs(specs: Sequence[RunSpec], out: Path, environments: Environments) -> list[Pending]:
    """Create the agent of the smallest seed of runs that differ only in the seed; a seed below 0 is an error.

    The agents of the user's own code are all created, because their configurations can depend on the seed in any way.
    """
    if len(specs) > 1 and own_code.is_own(specs[0].agent):
        return [pending for spec in specs for pending in _pending_runs([spec], out, environments)]
    first = min(specs, key=lambda spec: spec.seed)
    try:
        env = environments.get(first)
        agent = first.make_agent(env)
        config = config_of(env, agent, first.seed)
        config = dataclasses.replace(config, computation={**config.computation, "threads": first.threads})
        work = expected_work(env, config.agent, sum(parameter.numel() for parameter in agent.predictor.parameters()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{first}: {error}") from error
    return [Pending(spec, run_index.folder_of(out, config.with_seed(spec.seed)), work) for spec in specs]
