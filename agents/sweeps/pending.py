"""What of a sweep is done already, and whether the rest can be made: told before hours of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents import runs
from agents.experiments import folders
from agents.experiments.spec import RunSpec
from agents.experiments.work import Environments, expected_work


@dataclass(frozen=True)
class Pending:
    """A run that is to be made.

    Attributes:
        spec: what it is.
        folder: where it will lie, if it is made on a machine like this one.
        work: how long it is expected to take beside other runs.
    """

    spec: RunSpec
    folder: Path
    work: int


@dataclass(frozen=True)
class Plan:
    """Every run of a sweep once.

    Attributes:
        finished: folders of runs that are done, by digest.
        pending: those that are not, by digest.
        same: digests of runs that are one of these in other words, to that one's digest.
    """

    finished: dict[str, Path] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)


def plan(specs: Sequence[RunSpec], out: Path, *, fresh: bool = False) -> Plan:
    """Look which runs are finished, and make the agents of the others, one for all seeds.

    Args:
        specs: the runs; one that stands there twice counts once.
        out: folder of the environments' folders.
        fresh: take none for finished.

    Raises:
        ValueError, AlmaError: an environment or agent cannot be made, or a run is to be recorded that was begun
            without; the run is named.
    """
    known = {} if fresh else folders.finished_below(out, [spec.env for spec in specs])
    planned = Plan()
    alike: dict[str, dict[str, RunSpec]] = {}  # by all but the seed, by digest
    for spec in specs:
        digest = spec.digest()
        if digest in known and not spec.names_files:
            folders.require_record(known[digest], spec)
            planned.finished[digest] = known[digest]
        else:
            alike.setdefault(spec.but_seed(), {})[digest] = spec
    environments = Environments()
    places: dict[Path, str] = {}
    for group in alike.values():
        for pending in _located(list(group.values()), out, environments):
            digest = pending.spec.digest()
            if pending.folder in places:
                planned.same[digest] = places[pending.folder]
                continue
            places[pending.folder] = digest
            if not fresh:
                folders.require_record(pending.folder, pending.spec)
            if not fresh and folders.is_finished(pending.folder):
                folders.remember(pending.folder, pending.spec)  # the next time it is found at once
                planned.finished[digest] = pending.folder
            else:
                planned.pending[digest] = pending
    return planned


def _located(specs: Sequence[RunSpec], out: Path, environments: Environments) -> list[Pending]:
    """Runs that differ in the seed alone; the smallest seed's agent is made, since one below 0 is an error."""
    first = min(specs, key=lambda spec: spec.seed)
    try:
        env = environments.of(first)
        agent = first.make_agent(env)
        config = runs.describe(env, agent, first.seed) | {"threads": first.threads}
        work = expected_work(env, agent, first)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{first}: {error}") from error
    located = []
    for spec in specs:
        of_seed = config | {"seed": spec.seed, "agent": config["agent"] | {"seed": spec.seed}}
        located.append(Pending(spec, folders.folder_of(out, of_seed), work))
    return located
