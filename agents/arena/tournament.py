"""A tournament: several agents on the same streams, in the arena, and their standings.

Its folder holds

    config.json          everything that the numbers depend on: arena, agents, seeds, versions
    seed0/AGENT.jsonl    the ledger of each agent on each stream, written when the stream has been played
    standings.json       the configuration again, and the places

A tournament that was stopped goes on with the first stream that was not played to its end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents import runs
from agents.anytime import AnytimeAgent
from agents.bidder import ALLOWANCE, FIRST_GROWTH_ALLOWANCE, GROWTH_ALLOWANCE, Bidder
from agents.contestants import Contestant
from agents.report import ERROR_RATE, Measure
from agents.statistics import Interval
from alma_env import AlmaEnv, Ledger
from alma_env.arena import Arena

OnTick = Callable[[Arena], None]


@dataclass(frozen=True)
class Place:
    """One line of the standings: means over the seeds, with 95 % intervals.

    Attributes:
        rank: 1 for the lowest sum of errors; who has the same has the same rank.
        agent: its name.
        total: CER; of text the average perplexity.
        final_error: at the last tick.
        mem: Σ parameters.
        comp: Σ FLOPs.
        survived: the last tick that was answered before a budget was broken; B where none was.
    """

    rank: int
    agent: str
    total: Interval
    final_error: Interval
    mem: Interval
    comp: Interval
    survived: Interval


def play(arena: Arena, agents: Mapping[str, AnytimeAgent], seed: int, on_tick: OnTick | None = None) -> None:
    """Take new agents through the stream of ``seed``; their ledgers are then the arena's.

    Args:
        arena: of the same names; it is reset. With a shared budget the agents bid by `agents.bidder`.
        agents: by name.
        seed: of the stream.
        on_tick: told after every tick.

    Raises:
        ValueError: the agents are not the arena's, or one has trained before or cannot bid.
    """
    if set(agents) != set(arena.possible_agents):
        raise ValueError(f"agents {sorted(agents)} in an arena of {sorted(arena.possible_agents)}: give each its agent")
    for name, agent in agents.items():
        if agent.tick != 0:
            raise ValueError(
                f"agent {name!r} at tick {agent.tick}: it has trained on a stream before and would begin this one with "
                "what it learned there; make a new agent per stream"
            )
    options: dict[str, Any] = {"predictors": {name: agent.predictor for name, agent in agents.items()}}
    observations, _ = arena.reset(seed=seed, options=options)
    bidders: dict[str, Bidder] = {}
    if arena.shared_flops_budget is not None:
        bidders = {name: Bidder(agent, arena.meters[name]) for name, agent in agents.items()}
        # A bid needs to know what an answer costs, which has just been found out: begin again with bids for tick 1.
        bids = {
            name: bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)
            for name, bidder in bidders.items()
        }
        observations, _ = arena.reset(seed=seed, options=options | {"bids": bids})
    while arena.agents:
        actions: dict[str, Any] = {}
        for name in arena.agents:
            observation = observations[name]
            with arena.meters[name]:
                if bidders:
                    predictor = bidders[name].observe(observation, arena.grants[name])
                else:
                    predictor = agents[name].observe(observation)
            actions[name] = predictor
            if bidders:
                bid = bidders[name].next_bid(observation, arena.ledgers[name], arena.pool)
                actions[name] = {"predictor": predictor, "bid": bid}
        observations, *_ = arena.step(actions)
        if on_tick is not None:
            on_tick(arena)


def describe(arena: Arena, env: AlmaEnv, contestants: Sequence[Contestant], seeds: Sequence[int]) -> dict[str, Any]:
    """The configuration of a tournament: everything that its numbers depend on; plain JSON values.

    All agents are made once, and dropped, so that a mistake in the last is told before hours of work.

    Raises:
        ValueError: two of the agents are the same, or one cannot be made or cannot bid.
    """
    configs: dict[str, dict[str, Any]] = {}
    described: dict[str, Any] = {}
    for seed in seeds:
        for contestant in contestants:
            agent = contestant.make(env, seed)
            described = runs.describe(env, agent, seed)
            if arena.shared_flops_budget is not None:
                Bidder(agent, arena.meters[contestant.name])
            configs[contestant.name] = {name: value for name, value in agent.config.items() if name != "seed"}
    for name, config in configs.items():
        twin = next(other for other, its in configs.items() if its == config)
        if twin != name:
            raise ValueError(
                f"agents {twin!r} and {name!r} are the same agent, with the same seeds: it would play against itself "
                "and answer alike; leave one of them out"
            )
    config = {name: described[name] for name in ("env", "threads", "versions", "machine")}
    config |= {"arena": arena.protocol(), "agents": configs, "seeds": list(seeds)}
    if arena.shared_flops_budget is not None:
        config["bidder"] = {
            "allowance": ALLOWANCE,
            "first_growth_allowance": FIRST_GROWTH_ALLOWANCE,
            "growth_allowance": GROWTH_ALLOWANCE,
        }
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain


def begin(parent: Path, config: Mapping[str, Any]) -> Path:
    """The folder of a tournament below ``parent``, with its configuration in it.

    It depends on all but the seeds, so that a tournament with more of them goes on there.
    """
    of_all = {name: value for name, value in config.items() if name != "seeds"}
    text = json.dumps(of_all, indent=2, sort_keys=True)
    folder = parent / f"arena-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "config.json", text + "\n")
    return folder


def play_or_read(
    arena: Arena,
    env: AlmaEnv,
    contestants: Sequence[Contestant],
    seed: int,
    folder: Path,
    on_tick: OnTick | None = None,
) -> dict[str, Ledger]:
    """Play one stream into a folder, or read it where it has been played; the ledgers by agent."""
    files = {contestant.name: f"{file_name(contestant.name)}.jsonl" for contestant in contestants}
    played = folder / f"seed{seed}"
    if not played.is_dir():
        play(arena, {contestant.name: contestant.make(env, seed) for contestant in contestants}, seed, on_tick)
        partial = folder / f"seed{seed}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, ledger in arena.ledgers.items():
            (partial / files[name]).write_text(ledger.to_json())
        os.replace(partial, played)
    ledgers = {}
    for name, file in files.items():
        try:
            ledgers[name] = Ledger.from_json((played / file).read_text())
        except (FileNotFoundError, ValueError) as error:
            raise ValueError(f"{played / file}: {error}; delete {played}, and it is played again") from error
    return ledgers


def file_name(name: str) -> str:
    """A contestant's name without what file systems may not like.

    >>> file_name("gens:width=4,growth=every:2")
    'gens-width=4,growth=every-2'
    """
    return re.sub(r"[^\w=,.+-]", "-", name)


def standings(ledgers: Mapping[str, Sequence[Ledger]], measure: Measure = ERROR_RATE) -> list[Place]:
    """The places, best first.

    Args:
        ledgers: by agent, one for each stream.
        measure: what their errors add up to; the mean over the streams decides.
    """
    lines = []
    for name, of_agent in ledgers.items():
        scores = [ledger.score() for ledger in of_agent]
        line = Place(
            rank=0,
            agent=name,
            total=Interval.of([measure.sum(score) for score in scores]),
            final_error=Interval.of([score.final_error for score in scores]),
            mem=Interval.of([float(score.mem) for score in scores]),
            comp=Interval.of([float(score.comp) for score in scores]),
            survived=Interval.of([float(survived(ledger)) for ledger in of_agent]),
        )
        lines.append(line)
    lines.sort(key=lambda line: line.total.mean)
    ranks = {line.total.mean: rank for rank, line in reversed(list(enumerate(lines, start=1)))}
    return [dataclasses.replace(line, rank=ranks[line.total.mean]) for line in lines]


def survived(ledger: Ledger) -> int:
    """The last tick that an agent answered within its budgets.

    >>> survived(Ledger())
    -1
    """
    return sum(not row.refused for row in ledger) - 1


def write_standings(
    folder: Path, config: Mapping[str, Any], places: Sequence[Place], ledgers: Mapping[str, Sequence[Ledger]]
) -> Path:
    """``standings.json``: the configuration, the places, and the score of every agent on every stream."""
    scores = {
        name: {str(seed): dataclasses.asdict(ledger.score()) for seed, ledger in zip(config["seeds"], own, strict=True)}
        for name, own in ledgers.items()
    }
    written = {"config": config, "standings": [dataclasses.asdict(place) for place in places], "scores": scores}
    file = folder / "standings.json"
    _replace(file, json.dumps(written, indent=2) + "\n")
    return file


def _replace(file: Path, text: str) -> None:
    partial = file.with_name(file.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)
