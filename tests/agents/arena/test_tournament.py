"""Agents in a tournament have the ledgers of single runs; the lowest mean sum of errors is first."""

from __future__ import annotations

import pytest

import agents
import alma_env
from agents.analysis.statistics import Interval
from agents.arena import tournament
from agents.arena.contestants import read_contestants
from agents.arena.tournament import standings, survived
from agents.policies.waiting import Geometric
from alma_env import Ledger, Row
from alma_env.errors import FileLockedError
from alma_env.files import locked

from ..ledgers import without_seconds
from .entries import DIGITS, TICKS, enter


@pytest.fixture(scope="module")
def env() -> alma_env.AlmaEnv:
    return alma_env.make(DIGITS, ticks=TICKS)


def test_a_contestant_is_an_id_with_hyperparameters_and_shares_the_common_ones():
    plain, own, commas, tuples = read_contestants(
        ["sm", "ens:members=3,from_scratch=TRUE", "gens:growth=at:5,10,width=8", "ff:x=(1,2),space=logit"],
        {"width": 4, "epochs": 7},
    )
    assert (plain.name, plain.id, plain.hyperparameters) == ("sm", "sm", {"width": 4, "epochs": 7})
    assert own.hyperparameters == {"width": 4, "epochs": 7, "members": 3, "from_scratch": True}
    assert commas.hyperparameters == {"width": 8, "epochs": 7, "growth": "at:5,10"}
    assert (tuples.hyperparameters["x"], tuples.hyperparameters["space"]) == ((1, 2), "logit")


def test_without_a_shared_budget_every_agent_has_the_ledger_of_a_single_run(env):
    specs = ["sm:width=4,wait=2", "ens:width=4,members=2", "gens:width=4,wait=3,replay=true"]
    arena, players = enter(env, *specs, flops_budget={specs[0]: 1e8, specs[1]: 1e6})
    ticks = []
    tournament.play(arena, players, seed=3, on_tick=lambda arena: ticks.append(arena.tick))
    for contestant in read_contestants(specs, {"epochs": 2}):
        budget = arena.protocol()["agents"][contestant.name]["flops_budget"]
        own = alma_env.make(DIGITS, ticks=TICKS, flops_budget=budget)
        with_budget = agents.make(contestant.id, own, seed=0, **contestant.hyperparameters)
        assert without_seconds(arena.ledgers[contestant.name]) == without_seconds(agents.run(own, with_budget, seed=3))
    assert [ledger.score().truncated for ledger in arena.ledgers.values()] == [False, True, False]
    assert ticks == list(range(1, TICKS + 1))


def test_a_trained_agent_and_an_agent_of_another_arena_are_refused(env):
    arena, players = enter(env, "sm:width=2")
    with pytest.raises(ValueError, match="agents .*: the arena is for .*give one agent per name"):
        tournament.play(arena, {"other": players["sm:width=2"]}, seed=0)
    tournament.play(arena, players, seed=0)
    with pytest.raises(ValueError, match="agent 'sm:width=2' at tick 6: it has already trained"):
        tournament.play(arena, players, seed=1)


@pytest.mark.parametrize("budget", [{}, {"shared_flops_budget": 10**9}], ids=["free", "shared"])
def test_an_agent_that_fails_is_named_with_its_seed_and_tick(env, budget):
    arena, players = enter(env, "sm:width=2", "sm:width=3", **budget)
    players["sm:width=3"].policy = lambda now: now.tick < 2 or "train"
    with pytest.raises(tournament.ContestantError, match=r"agent 'sm:width=3', seed 4, tick 2: .* returned 'train'"):
        tournament.play(arena, players, seed=4)


def test_the_recommended_rule_is_a_contestant(env):
    (rule,) = read_contestants(["sm:policy=geometric:factor=1.6,stop=0.8,width=2"])
    assert rule.make(env, 0).policy == Geometric(factor=1.6, stop=0.8)


LONG = "sm:growth=at:" + ",".join(map(str, range(100)))


@pytest.mark.parametrize(
    "names",
    [
        (f"{LONG},width=2", f"{LONG},width=3"),
        ("a/b.py:f", "a-b.py:f"),
        ("sm:policy=x/n.npz", "sm:policy=x-n.npz"),
        ("A.py:f", "a.py:f"),
    ],
    ids=["long", "folder", "policy", "case"],
)
def test_agents_have_short_files_that_differ_on_every_file_system(names):
    files = {file.casefold() for file in tournament.file_names(names).values()}
    assert len(files) == 2
    assert max(map(len, files)) < 120


def test_a_ledger_that_lost_rows_is_refused(env, tmp_path):
    contestants = read_contestants(["sm:width=2"], {"epochs": 1})
    arena, _ = enter(env, "sm:width=2")
    whole = tournament.play_or_read(arena, env, contestants, 0, tmp_path)
    file = tmp_path / "seed0" / "sm-width=2.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"6 rows, and a stream has 7; delete .*seed0 to play the stream again"):
        tournament.play_or_read(arena, env, contestants, 0, tmp_path)
    file.unlink()
    file.parent.rmdir()
    again = tournament.play_or_read(arena, env, contestants, 0, tmp_path)
    assert without_seconds(again["sm:width=2"]) == without_seconds(whole["sm:width=2"])


def test_a_stream_that_another_process_plays_is_named_and_only_this_stream_is_locked(env, tmp_path):
    contestants = read_contestants(["sm:width=2"], {"epochs": 1})
    arena, _ = enter(env, "sm:width=2")
    with locked(tmp_path / "seed0.lock", wait=False):
        with pytest.raises(FileLockedError, match=rf"{tmp_path}.seed0: another process plays .*use another folder"):
            tournament.play_or_read(arena, env, contestants, 0, tmp_path)
        assert tournament.play_or_read(arena, env, contestants, 1, tmp_path)
    whole = tournament.play_or_read(arena, env, contestants, 0, tmp_path)
    with locked(tmp_path / "seed0.lock", wait=False):  # a stream that ended can be read
        assert tournament.play_or_read(arena, env, contestants, 0, tmp_path) == whole


def ledger_of(errors, refused_from=99):
    return Ledger(
        [
            Row(tick, error, 10, 0, 0.0, {"training": 5}, 0, (), "", tick >= refused_from, 0.0)
            for tick, error in enumerate(errors)
        ]
    )


def test_the_lowest_mean_sum_of_errors_is_first_and_equal_sums_share_a_rank():
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
