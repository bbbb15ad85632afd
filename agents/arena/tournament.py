"""A tournament: several agents on the same streams in the arena, and their standings.

The folder of a tournament holds

    config.json          everything that the results depend on: arena, agents, seeds, versions
    seed0/AGENT.jsonl    the ledger of each agent on each stream, written at the end of the stream
    seed0.lock           locked by the process that plays the stream
    standings.json       the configuration, the places and the scores

A tournament that was stopped continues with the first stream that is not complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.analysis.measures import ERROR_RATE, Measure
from agents.analysis.statistics import Interval
from agents.arena.bidder import ALLOWANCE, FIRST_GROWTH_ALLOWANCE, GROWTH_ALLOWANCE, Bidder
from agents.arena.contestants import Contestant
from agents.catalogue import own_code
from agents.learners.anytime import AnytimeAgent
from agents.runs import run
from alma_env import AlmaEnv, AlmaError, Ledger
from alma_env.arena.arena import Arena
from alma_env.errors import FileLockedError
from alma_env.files import locked, replace_file

OnTick = Callable[[Arena], None]
_LONGEST_NAME = 100  # characters of a file's name; file systems allow 255 bytes


class ContestantError(AlmaError):
    """An agent of a tournament failed; the streams that ended before keep their ledgers."""


@dataclass(frozen=True)
class Place:
    """One line of the standings: means over the seeds, with 95 % intervals."""

    rank: int  # 1 for the lowest sum of errors; equal sums have equal ranks
    agent: str
    total: Interval  # CER; for text the average perplexity
    final_error: Interval
    mem: Interval
    comp: Interval
    survived: Interval  # the last tick that was answered within the budgets


def play(arena: Arena, agents: Mapping[str, AnytimeAgent], seed: int, on_tick: OnTick | None = None) -> None:
    """Reset the arena, and play the stream of ``seed`` with new agents by name; the arena then holds their ledgers.

    With a shared budget `agents.arena.bidder` bids for the agents. After each tick ``on_tick`` gets the arena.

    Raises:
        ValueError: the names differ from the arena's, or an agent has trained before or cannot bid.
        ContestantError: a training, a policy or a predictor of an agent failed.
    """
    if set(agents) != set(arena.possible_agents):
        raise ValueError(
            f"agents {sorted(agents)}: the arena is for {sorted(arena.possible_agents)}; give one agent per name"
        )
    for name, agent in agents.items():
        if agent.tick != 0:
            raise ValueError(
                f"agent {name!r} at tick {agent.tick}: it has already trained on a stream; make a new agent per stream"
            )
    options: dict[str, Any] = {"predictors": {name: agent.predictor for name, agent in agents.items()}}
    observations, _ = arena.reset(seed=seed, options=options)
    bidders: dict[str, Bidder] = {}
    if arena.shared_flops_budget is not None:
        bidders = {name: Bidder(agent, arena.meters[name]) for name, agent in agents.items()}
        # A bid depends on the cost of an answer, which the first reset measures; the second reset has bids for tick 1.
        bids = {}
        for name, bidder in bidders.items():
            with _named(name, seed, 1):
                bids[name] = bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)
        observations, _ = arena.reset(seed=seed, options=options | {"bids": bids})
    while arena.agents:
        actions: dict[str, Any] = {}
        for name in arena.agents:
            observation = observations[name]
            with arena.meters[name], _named(name, seed, arena.tick + 1):
                if bidders:
                    predictor = bidders[name].observe(observation, arena.grants[name])
                else:
                    predictor = agents[name].observe(observation)
            actions[name] = predictor
            if bidders:
                with _named(name, seed, arena.tick + 2):
                    bid = bidders[name].next_bid(observation, arena.ledgers[name], arena.pool)
                actions[name] = {"predictor": predictor, "bid": bid}
        observations, *_ = arena.step(actions)
        if on_tick is not None:
            on_tick(arena)


@contextmanager
def _named(name: str, seed: int, tick: int) -> Iterator[None]:
    """Put the name of the agent, the seed and the tick before the message of an error of this project."""
    try:
        yield
    except AlmaError as error:
        raise ContestantError(f"agent {name!r}, seed {seed}, tick {tick}: {error}") from (error.__cause__ or error)


def describe(arena: Arena, env: AlmaEnv, contestants: Sequence[Contestant], seeds: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of a tournament, which is everything that its results depend on, as JSON values.

    Every agent is created once and dropped, so that a mistake in the last agent is reported before hours of work.

    Raises:
        ValueError: two agents are equal, or an agent cannot be created or cannot bid.
    """
    configs: dict[str, dict[str, Any]] = {}
    described: dict[str, Any] = {}
    for seed in seeds:
        for contestant in contestants:
            agent = contestant.make(env, seed)
            described = run.config_of(env, agent, seed).to_dict()
            if arena.shared_flops_budget is not None:
                Bidder(agent, arena.meters[contestant.name])
            configs[contestant.name] = {name: value for name, value in agent.config.items() if name != "seed"}
    for name, config in configs.items():
        twin = next(other for other, its in configs.items() if its == config)
        if twin != name:
            raise ValueError(
                f"agents {twin!r} and {name!r} are the same agent with the same seeds, so their answers are "
                "equal; leave one of them out"
            )
    config = {name: described[name] for name in ("env", "threads", "versions", "machine")}
    settings = {contestant.name: _setting(contestant, configs[contestant.name]) for contestant in contestants}
    config |= {"arena": arena.protocol(), "agents": settings, "seeds": list(seeds)}
    if arena.shared_flops_budget is not None:
        config["bidder"] = {
            "allowance": ALLOWANCE,
            "first_growth_allowance": FIRST_GROWTH_ALLOWANCE,
            "growth_allowance": GROWTH_ALLOWANCE,
        }
    described = json.loads(json.dumps(config))
    return described


def _setting(contestant: Contestant, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of an agent without the seed of its policy, if a function of the user chose this seed.

    Such a seed may differ between streams, and the code in the configuration determines it. A seed in the text of a
    policy is the same on all streams.
    """
    policy = config.get("policy")
    if not own_code.is_own(contestant.id) or "policy" in contestant.hyperparameters or not isinstance(policy, Mapping):
        return dict(config)
    return {**config, "policy": {name: value for name, value in policy.items() if name != "seed"}}


def begin(parent: Path, config: Mapping[str, Any]) -> Path:
    """Create the folder of a tournament below ``parent`` with its configuration, and return the folder.

    The folder's name does not depend on the seeds, so a tournament with more seeds continues in the same folder.
    """
    of_all = {name: value for name, value in config.items() if name != "seeds"}
    text = json.dumps(of_all, indent=2, sort_keys=True)
    folder = parent / f"arena-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "config.json", text + "\n", concurrent=True)
    return folder


def play_or_read(
    arena: Arena,
    env: AlmaEnv,
    contestants: Sequence[Contestant],
    seed: int,
    folder: Path,
    on_tick: OnTick | None = None,
) -> dict[str, Ledger]:
    """Play one stream and write its ledgers into a folder, or read them if they exist; return them by agent.

    Raises:
        FileLockedError: another process plays this stream.
        ValueError: a ledger is missing or damaged; or as `play`.
    """
    files = file_names([contestant.name for contestant in contestants])
    played = folder / f"seed{seed}"
    if not played.is_dir():
        with _locked(played):
            if not played.is_dir():  # another process may have played it before this one had the lock
                play(arena, {contestant.name: contestant.make(env, seed) for contestant in contestants}, seed, on_tick)
                partial = folder / f"seed{seed}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                for name, ledger in arena.ledgers.items():
                    (partial / files[name]).write_text(ledger.to_json())
                os.replace(partial, played)
    ledgers = {}
    for name, file in files.items():
        try:
            ledgers[name] = Ledger.from_json((played / file).read_text())
            if len(ledgers[name]) != env.ticks + 1:
                raise ValueError(f"{len(ledgers[name])} rows, and a stream has {env.ticks + 1}")
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"{played / file}: {error}; delete {played} to play the stream again") from error
    return ledgers


@contextmanager
def _locked(played: Path) -> Iterator[None]:
    """Lock one stream of a tournament: other processes may play other streams in the same folder."""
    played.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(played.with_name(f"{played.name}.lock"), wait=False))
        except FileLockedError:
            raise FileLockedError(
                f"{played}: another process plays this stream; wait until it ends, end it, or use another folder"
            ) from None
        yield


def file_names(names: Sequence[str]) -> dict[str, str]:
    """Return a file for the ledger of each contestant: its name without characters that some file systems refuse.

    A digest follows a name that is too long, and names whose files are equal without it; some file systems do not
    distinguish upper and lower case.

    >>> file_names(["gens:width=4,growth=every:2"])
    {'gens:width=4,growth=every:2': 'gens-width=4,growth=every-2.jsonl'}
    """
    plain = {name: re.sub(r"[^\w=,.+-]", "-", name) for name in names}
    folded = [one.casefold() for one in plain.values()]
    files = {}
    for name, one in plain.items():
        if len(one) > _LONGEST_NAME or folded.count(one.casefold()) > 1:
            one = f"{one[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        files[name] = f"{one}.jsonl"
    return files


def standings(ledgers: Mapping[str, Sequence[Ledger]], measure: Measure = ERROR_RATE) -> list[Place]:
    """Return the places of agents, the lowest mean of the measure first; an agent has one ledger per stream."""
    lines = []
    for name, of_agent in ledgers.items():
        scores = [ledger.score() for ledger in of_agent]
        place = Place(
            rank=0,
            agent=name,
            total=Interval.of([measure.sum(score) for score in scores]),
            final_error=Interval.of([score.final_error for score in scores]),
            mem=Interval.of([float(score.mem) for score in scores]),
            comp=Interval.of([float(score.comp) for score in scores]),
            survived=Interval.of([float(survived(ledger)) for ledger in of_agent]),
        )
        lines.append(place)
    lines.sort(key=lambda line: line.total.mean)
    ranks = {line.total.mean: rank for rank, line in reversed(list(enumerate(lines, start=1)))}
    return [dataclasses.replace(line, rank=ranks[line.total.mean]) for line in lines]


def survived(ledger: Ledger) -> int:
    """Return the last tick that an agent answered within its budgets.

    >>> survived(Ledger())
    -1
    """
    return sum(not row.refused for row in ledger) - 1


def write_standings(
    folder: Path, config: Mapping[str, Any], places: Sequence[Place], ledgers: Mapping[str, Sequence[Ledger]]
) -> Path:
    """Write ``standings.json``: configuration, places, and the score of every agent on every stream."""
    scores = {
        name: {str(seed): dataclasses.asdict(ledger.score()) for seed, ledger in zip(config["seeds"], own, strict=True)}
        for name, own in ledgers.items()
    }
    written = {"config": config, "standings": [dataclasses.asdict(place) for place in places], "scores": scores}
    file = folder / "standings.json"
    replace_file(file, json.dumps(written, indent=2) + "\n", concurrent=True)
    return file
