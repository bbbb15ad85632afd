"""Agents that play against each other are those that run alone; within a shared budget they bid, wait and survive."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys

import numpy as np
import pytest

import agents
import alma_env
from agents import cli, tournament
from agents.bidder import Bidder
from agents.cli import main
from agents.contestants import read_contestants
from agents.statistics import Interval
from agents.tournament import standings, survived
from alma_env import Ledger, Row
from alma_env.arena import Arena

TICKS = 6
DIGITS = "Digits-ALMA-v0"


@pytest.fixture(scope="module")
def env() -> alma_env.AlmaEnv:
    return alma_env.make(DIGITS, ticks=TICKS)


def rows(ledger):
    """All of a ledger but the seconds."""
    return [dataclasses.replace(row, seconds=0.0) for row in ledger]


def enter(env, *specs, **arena_keywords):
    """Agents by their specification, and an arena for them."""
    contestants = read_contestants(specs, {"epochs": 2})
    arena = Arena(env, [contestant.name for contestant in contestants], **arena_keywords)
    return arena, {contestant.name: contestant.make(env, seed=0) for contestant in contestants}


# --- who plays -------------------------------------------------------------------------------------


def test_a_contestant_is_written_as_an_id_with_hyperparameters_and_takes_what_it_does_not_say_from_all():
    plain, own, commas, tuples = read_contestants(
        ["sm", "ens:members=3,from_scratch=TRUE", "gens:growth=at:5,10,width=8", "ff:x=(1,2),space=logit"],
        {"width": 4, "epochs": 7},
    )
    assert (plain.name, plain.id, plain.hyperparameters) == ("sm", "sm", {"width": 4, "epochs": 7})
    assert own.hyperparameters == {"width": 4, "epochs": 7, "members": 3, "from_scratch": True}
    assert commas.hyperparameters == {"width": 8, "epochs": 7, "growth": "at:5,10"}
    assert (tuples.hyperparameters["x"], tuples.hyperparameters["space"]) == ((1, 2), "logit")


# --- the game --------------------------------------------------------------------------------------


def test_without_a_shared_budget_every_agent_has_the_ledger_of_its_run_alone(env):
    specs = ["sm:width=4,wait=2", "ens:width=4,members=2", "gens:width=4,wait=3,replay=true"]
    arena, players = enter(env, *specs, flops_budget={specs[0]: 1e8, specs[1]: 1e6})
    ticks = []
    tournament.play(arena, players, seed=3, on_tick=lambda arena: ticks.append(arena.tick))
    for contestant in read_contestants(specs, {"epochs": 2}):
        budget = arena.protocol()["agents"][contestant.name]["flops_budget"]
        own = alma_env.make(DIGITS, ticks=TICKS, flops_budget=budget)
        with_budget = agents.make(contestant.id, own, seed=0, **contestant.hyperparameters)
        assert rows(arena.ledgers[contestant.name]) == rows(agents.run(own, with_budget, seed=3))
    assert [ledger.score().truncated for ledger in arena.ledgers.values()] == [False, True, False]
    assert ticks == list(range(1, TICKS + 1))


def test_a_used_agent_or_one_of_another_arena_does_not_play(env):
    arena, players = enter(env, "sm:width=2")
    with pytest.raises(ValueError, match="agents .* in an arena of"):
        tournament.play(arena, {"other": players["sm:width=2"]}, seed=0)
    tournament.play(arena, players, seed=0)
    with pytest.raises(ValueError, match="agent 'sm:width=2' at tick 6: it has trained on a stream before"):
        tournament.play(arena, players, seed=1)


FAMILY = (
    "sm:width=4",
    "sm:width=4,patience=1,epochs=4",
    "sm:width=8,wait=2,replay=true",
    "sm:width=4,keep_initial=true,wait=2",
    "ens:width=4,members=2",
    "umix:width=4",
    "gens:width=4",
    "gmoe:width=4,wait=2",
    "oracle:width=2",
)


@pytest.mark.parametrize(("budget", "seats"), [(10**12, len(FAMILY)), (3 * 10**7, 2)], ids=["plenty", "scarce"])
def test_bidders_keep_within_their_grants_and_together_within_the_budget(env, budget, seats):
    arena, players = enter(env, *FAMILY, shared_flops_budget=budget, seats=seats)
    trained = dict.fromkeys(players, 0)

    def on_tick(arena):
        for name, ledger in arena.ledgers.items():
            trained[name] += ledger[arena.tick].comp > 0
        assert sum(ledger[arena.tick].comp > 0 for ledger in arena.ledgers.values()) <= seats

    tournament.play(arena, players, seed=0, on_tick=on_tick)
    assert not [name for name, ledger in arena.ledgers.items() if ledger.score().truncated]
    assert 0 < sum(ledger.comp for ledger in arena.ledgers.values()) <= budget
    stages = {name: agent.stages for name, agent in players.items()}
    assert trained == stages
    if budget == 10**12:  # nobody had to wait for a grant
        assert stages == {name: math.ceil(TICKS / agent.config["policy"]["wait"]) for name, agent in players.items()}
    else:
        assert sum(stages.values()) < 2 * TICKS
        assert arena.pool >= 0


def test_with_one_seat_agents_alike_take_turns_and_lose_no_data(env):
    arena, players = enter(env, "sm:width=4", "sm:width=4,batch_size=127", shared_flops_budget=10**12)
    examples = {name: [] for name in players}
    for name, agent in players.items():
        agent.learner.on_epoch = lambda epoch, name=name, agent=agent: examples[name].append(agent.training_on)
    tournament.play(arena, players, seed=0)
    seen = {name: sum(sizes) // 2 for name, sizes in examples.items()}  # in 2 epochs
    assert sorted(agent.stages for agent in players.values()) == [TICKS // 2, TICKS // 2]
    assert {env.examples_per_tick * (TICKS - agent.pending) for agent in players.values()} == set(seen.values())
    assert max(seen.values()) == env.examples_per_tick * TICKS


def test_a_bidder_asks_for_what_its_training_costs_and_for_nothing_where_it_would_wait(env):
    arena, players = enter(env, "sm:width=4,wait=2", shared_flops_budget=10**12)
    ((name, agent),) = players.items()
    observations, _ = arena.reset(seed=0, options={"predictors": {name: agent.predictor}})
    bidder = Bidder(agent, arena.meters[name])

    def answer(grant):
        with arena.meters[name]:
            return bidder.observe(observations[name], grant)

    bids = [bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)]
    while arena.tick < TICKS - 1:
        predictor = answer(arena.grants[name])
        assert (predictor is not None) == (arena.grants[name] > 0)
        bids.append(bidder.next_bid(observations[name], arena.ledgers[name], arena.pool))
        observations, *_ = arena.step({name: {"predictor": predictor, "bid": bids[-1]}})
    costs = [row.comp for row in arena.ledgers[name]][1:]
    assert [bid > 0 for bid in bids] == [False, True] * (TICKS // 2)
    assert [cost > 0 for cost in costs] == [False, True, False, True, False]
    assert 0.5 * bids[1] < costs[1] < bids[1]  # the first layer needs no input gradient, which is known the next time
    assert costs[3] == costs[1]
    assert bids[3] == pytest.approx(1.05 * costs[1], abs=1)
    assert arena.grants[name] == bids[-1]
    # It does not train on less than it asked for, and does not bid what the pool cannot pay.
    assert answer(bids[-1] - 1) is None
    assert arena.meters[name].total == arena.ledgers[name].comp


def test_a_bidder_bids_nothing_that_the_pool_cannot_pay_and_nothing_after_the_last_tick(env):
    arena, players = enter(env, "sm:width=4", shared_flops_budget=10**12)
    ((name, agent),) = players.items()
    observations, _ = arena.reset(seed=0, options={"predictors": {name: agent.predictor}})
    bidder = Bidder(agent, arena.meters[name])
    full = bidder.next_bid(observations[name], arena.ledgers[name], arena.pool)
    assert bidder.next_bid(observations[name], arena.ledgers[name], full) == full
    assert bidder.next_bid(observations[name], arena.ledgers[name], full - 1) == 0
    agent.tick = TICKS
    assert bidder.next_bid(observations[name], arena.ledgers[name], arena.pool) == 0


def test_what_cannot_be_foreseen_is_not_bid_for():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 3, 32, 32)).astype("uint8"), rng.integers(0, 2, 60)
    images = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x, y), ticks=2, name="CIFAR10")
    for growth, refused in (("every", True), ("never", False)):
        arena, players = enter(images, f"ff:width=1,growth={growth}", shared_flops_budget=1e9)
        ((name, agent),) = players.items()
        if refused:
            with pytest.raises(ValueError, match="growth='every' of agent 'ff' with a shared budget.*growth=never"):
                Bidder(agent, arena.meters[name])
        else:
            assert Bidder(agent, arena.meters[name]).bid == 0


# --- standings -------------------------------------------------------------------------------------


def ledger_of(errors, refused_from=99):
    return Ledger(
        [
            Row(tick, error, 10, 0, 0.0, {"training": 5}, 0, (), "", tick >= refused_from, 0.0)
            for tick, error in enumerate(errors)
        ]
    )


def test_the_lowest_mean_sum_of_errors_is_first_and_equals_share_a_rank():
    ledgers = {
        "slow": [ledger_of([0.9, 0.9, 0.5]), ledger_of([0.9, 0.9, 0.7])],
        "fast": [ledger_of([0.9, 0.25, 0.25]), ledger_of([0.9, 0.5, 0.5])],
        "also fast": [ledger_of([0.9, 0.5, 0.5]), ledger_of([0.9, 0.25, 0.25])],
        "out": [ledger_of([0.9, 0.9, 0.9], refused_from=2), ledger_of([0.9, 0.9, 0.9], refused_from=1)],
    }
    places = standings(ledgers)
    assert [(place.rank, place.agent) for place in places] == [(1, "fast"), (1, "also fast"), (3, "slow"), (4, "out")]
    assert places[2].total == Interval.of([0.9 + 0.9 + 0.5, 0.9 + 0.9 + 0.7])
    assert places[2].final_error == Interval.of([0.5, 0.7])
    assert (places[0].mem.mean, places[0].comp.mean) == (30, 15)
    assert places[3].survived == Interval.of([1.0, 0.0])
    assert survived(ledgers["slow"][0]) == 2


# --- the command -----------------------------------------------------------------------------------

QUICK = ["arena", DIGITS, "--set", "ticks=4", "epochs=1"]


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_prints_standings_and_writes_all_that_is_needed_to_repeat_them(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    specs = ["sm:width=4", "gens:width=4,growth=every:2", "sm:width=8,wait=2"]
    arguments = [*QUICK, "--agents", *specs, "--out", str(tmp_path)]
    status, out, err = run(capsys, *arguments, "--seeds", "0", "1")
    assert (status, err) == (0, "")
    for words in ("CER", "Mem", "Comp", "ticks", "±", "Ranked by CER", *specs):
        assert words in out
    (file,) = tmp_path.rglob("standings.json")
    written = json.loads(file.read_text())
    assert {place["agent"] for place in written["standings"]} == set(specs)
    assert [place["rank"] for place in written["standings"]] == [1, 2, 3]
    config = written["config"]
    assert (config["env"], config["seeds"], config["arena"]["stream"]["ticks"]) == (DIGITS, [0, 1], 4)
    assert config["agents"][specs[1]]["policy"] == {"wait": 1, "replay": False, "growth": "every:2"}
    assert config["agents"][specs[2]]["stage"]["epochs"] == 1
    ledger = Ledger.from_json((file.parent / "seed1" / "sm-width=8,wait=2.jsonl").read_text())
    own = alma_env.make(DIGITS, ticks=4)
    assert rows(ledger) == rows(agents.run(own, agents.make("sm", own, width=8, wait=2, epochs=1, seed=1), seed=1))
    assert written["scores"][specs[2]]["1"]["cer"] == ledger.score().cer
    assert (file.parent / "errors.png").read_bytes().startswith(b"\x89PNG")
    # What has been played is not played again, and more seeds go on in the same folder.
    before = {path: path.read_text() for path in tmp_path.rglob("*.jsonl")}
    monkeypatch.setenv("COLUMNS", "80")  # in which no part of a name is lost
    status, out, _ = run(capsys, *arguments, "--seeds", "1", "2")
    assert (status, "…" in out) == (0, False)
    after = {path: path.read_text() for path in tmp_path.rglob("*.jsonl")}
    assert before.items() <= after.items()
    assert len(after) == 9
    # The order in which agents are named changes nothing.
    shuffled = [*QUICK, "--agents", *reversed(specs), "--out", str(tmp_path), "--seeds", "0"]
    assert run(capsys, *shuffled)[0] == 0
    assert len(list(tmp_path.rglob("standings.json"))) == 1


def test_a_stream_that_was_stopped_is_played_again_and_a_damaged_file_is_named(capsys, tmp_path, monkeypatch):
    arguments = [*QUICK, "--agents", "sm:width=2", "sm:width=3", "--out", str(tmp_path), "--seeds", "0", "1"]
    play = tournament.play

    def interrupted(arena, players, seed, on_tick):
        if seed == 1:
            raise KeyboardInterrupt
        play(arena, players, seed, on_tick)

    monkeypatch.setattr(tournament, "play", interrupted)
    status, _, err = run(capsys, *arguments)
    assert status == 130
    assert "the same command goes on from here" in err
    assert len(list(tmp_path.rglob("*.jsonl"))) == 2
    monkeypatch.undo()
    assert run(capsys, *arguments)[0] == 0
    assert len(list(tmp_path.rglob("*.jsonl"))) == 4
    next(tmp_path.rglob("seed1/sm-width=2.jsonl")).write_text("nonsense\n")
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert re.search(r"seed1/sm-width=2.jsonl: line 1: not a ledger row.*delete .*seed1, and it is played again", err)


def test_budgets_of_each_and_of_all(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    specs = ["sm:width=4", "sm:width=16"]
    status, out, _ = run(capsys, *QUICK, "--agents", *specs, "--flops-budget", "4e6", "--out", str(tmp_path / "own"))
    assert status == 0
    assert re.search(r"sm:width=4 .* 4 *\n", out)
    assert re.search(r"sm:width=16 .* [0-3] *\n", out)
    shared = ["--shared-budget", "2e7", "--seats", "2", "--out", str(tmp_path / "shared")]
    status, out, _ = run(capsys, *QUICK, "--agents", *specs, *shared)
    assert status == 0
    (file,) = (tmp_path / "shared").rglob("standings.json")
    written = json.loads(file.read_text())
    assert (written["config"]["arena"]["shared_flops_budget"], written["config"]["arena"]["seats"]) == (2e7, 2)
    assert written["config"]["bidder"]["allowance"] == 1.05
    spent = [scores["0"]["comp"] for scores in written["scores"].values()]
    assert 0 < sum(spent) <= 2e7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agents", "fine-tune"], "agent 'fine-tune': "),
        (["--agents", "sm:widht=4"], "agent 'sm:widht=4': 'widht': agent 'sm' has no such hyper-parameter"),
        (["--agents", "sm:width=few"], "agent 'sm:width=few': width='few': must be a whole number"),
        (["--agents", "sm:width=4,replay"], "width='4,replay': must be a whole number"),
        (["--agents", "sm:"], "--agents sm:: write an agent's id, with hyper-parameters after a colon"),
        (["--agents", ":width=4"], "write an agent's id"),
        (["--agents", "sm:width"], "'width' is no key=value"),
        (["--agents", "sm:width=4,width=5"], "width stands there twice"),
        (["--agents", "sm:seed=1"], "seed is no hyper-parameter of one agent; write --seeds"),
        (["--agents", "sm:id=ens"], "id is no hyper-parameter of one agent; write it first"),
        (["--agents", "sm", "sm"], "--agents sm: stands there twice"),
        (["--agents", "sm", "sm:wait=1"], "agents 'sm' and 'sm:wait=1' are the same agent"),
        (["--agents", "sm:wait=9"], "agent 'sm:wait=9': wait=9: the stream has only 4 mega-batches"),
        (["--agents", "sm", "--seeds", "0", "0"], "--seeds: 0 stands there twice"),
        (["--agents", "sm", "--seeds", "-1"], "seed=-1"),
        (["--agents", "sm", "--seats", "2"], "--seats 2 without --shared-budget"),
        (
            ["--agents", "sm", "--shared-budget", "1e9", "--seats", "2"],
            "seats=2: between 1 and the number of agents, 1",
        ),
        (["--agents", "sm", "--shared-budget", "0"], "a budget must be positive"),
        (["--agents", "sm", "--flops-budget", "-1"], "flops_budget=-1.0: a budget must be positive"),
        (["--agents", "sm", "--set", "flops_budget=9"], "write --flops-budget"),
        (["--agents", "sm", "--set", "shared_flops_budget=9"], "write --shared-budget"),
        (["--agents", "sm", "--set", "colour=red"], "'colour': agent 'sm' has no such hyper-parameter"),
        (["--agents", "sm", "--set", "ticks"], "--set ticks: 'ticks' is no key=value"),
        (["--agents", "sm", "--threads", "0"], "--threads 0: at least 1 is needed"),
    ],
)
def test_bad_input_gets_one_message_with_the_rule_and_status_2(capsys, tmp_path, arguments, message):
    status, out, err = run(capsys, *QUICK, *arguments, "--out", str(tmp_path))
    assert (status, out) == (2, "")
    assert "alma arena:" in err
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_environment_is_told(capsys):
    status, _, err = run(capsys, "arena", "Digit-ALMA-v0", "--agents", "sm")
    assert status == 2
    assert "unknown environment; the ids are" in err


def test_on_a_terminal_a_bar_moves(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cli.Console, "is_terminal", True)
    status, out, _ = run(capsys, *QUICK, "--agents", "sm:width=2", "sm:width=3", "--out", str(tmp_path))
    assert status == 0
    assert "tick 4/4" in out
    assert "leads with CER" in out


def test_without_pettingzoo_the_command_names_the_extra(capsys, monkeypatch):
    for module in ("agents.tournament", "alma_env.arena"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(agents, "tournament")
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    status, _, err = run(capsys, *QUICK, "--agents", "sm")
    assert status == 2
    assert "pip install 'alma-env[rl]'" in err


def test_a_policy_that_looks_at_what_was_spent_can_bid():
    contestants = read_contestants(["sm:width=4,policy=budget:budget=1e7", "sm:width=4,policy=doubling"], {"epochs": 2})
    env = alma_env.make("Digits-ALMA-v0", ticks=6)
    arena = Arena(env, [contestant.name for contestant in contestants], shared_flops_budget=10**8)
    tournament.play(arena, {contestant.name: contestant.make(env, 0) for contestant in contestants}, 0)
    assert all(ledger.comp > 0 and len(ledger) == 7 for ledger in arena.ledgers.values())
