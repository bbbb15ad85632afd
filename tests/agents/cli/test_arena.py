"""``alma arena``: standings, files, budgets, and messages about wrong input."""

from __future__ import annotations

import json
import re
import sys

import pytest
from rich.console import Console

import agents
import alma_env
from agents.arena import tournament
from alma_env import Ledger
from alma_env.errors import how_to_install

from ..arena.entries import DIGITS
from ..ledgers import without_seconds
from .running import run

QUICK = ["arena", DIGITS, "--set", "ticks=4", "epochs=1"]


def test_the_command_prints_standings_and_writes_what_repeats_them(capsys, tmp_path, monkeypatch):
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
    alone = agents.run(own, agents.make("sm", own, width=8, wait=2, epochs=1, seed=1), seed=1)
    assert without_seconds(ledger) == without_seconds(alone)
    assert written["scores"][specs[2]]["1"]["cer"] == ledger.score().cer
    assert (file.parent / "errors.png").read_bytes().startswith(b"\x89PNG")
    # A complete stream is not played again, and more seeds continue in the same folder.
    before = {path: path.read_text() for path in tmp_path.rglob("*.jsonl")}
    monkeypatch.setenv("COLUMNS", "80")  # every name is complete
    status, out, _ = run(capsys, *arguments, "--seeds", "1", "2")
    assert (status, "…" in out) == (0, False)
    after = {path: path.read_text() for path in tmp_path.rglob("*.jsonl")}
    assert before.items() <= after.items()
    assert len(after) == 9
    # The order of the agents changes nothing.
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
    assert re.search(r"seed1/sm-width=2.jsonl: line 1: not a ledger row.*delete .*seed1 to play", err)


def test_budgets_per_agent_and_shared_budgets(capsys, tmp_path, monkeypatch):
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
        (["--agents", "my.py", "sm"], "agent my.py:: must be FILE.py:FUNCTION"),
        (["--agents", "my.py:make_agent:", "sm"], "--agents my.py:make_agent:: write the id, and hyper-parameters"),
        (["--agents", "none.py:make_agent", "sm"], "`alma new agent none.py` writes one"),
        (["--agents", "sm:widht=4"], "agent 'sm:widht=4': 'widht': agent 'sm' has no such hyper-parameter"),
        (["--agents", "sm:width=few"], "agent 'sm:width=few': width='few': must be a whole number"),
        (["--agents", "sm:width=4,replay"], "width='4,replay': must be a whole number"),
        (["--agents", "sm:"], "--agents sm:: write the id, and hyper-parameters"),
        (["--agents", ":width=4"], "write the id, and hyper-parameters"),
        (["--agents", "sm:width"], "'width' is not key=value"),
        (["--agents", "sm:width=4,width=5"], "width is given twice"),
        (
            ["--agents", "sm:policy=doubling:first=2,first=3"],
            "first=2,first=3: the field first is given",
        ),
        (["--agents", "sm:policy=never"], "agent 'sm:policy=never': policy=never: unknown policy"),
        (["--agents", "sm:ticks=4"], "'ticks': a keyword of the environment, not of agent 'sm'"),
        (["--agents", "sm:seed=1"], "seed is not a hyper-parameter of an agent; write --seeds"),
        (["--agents", "sm:id=ens"], "id is not a hyper-parameter of an agent; write it first"),
        (["--agents", "sm", "sm"], "--agents sm: given twice"),
        (["--agents", "sm", "sm:wait=1"], "agents 'sm' and 'sm:wait=1' are the same agent"),
        (["--agents", "sm:wait=9"], "agent 'sm:wait=9': wait=9: the stream has only 4 mega-batches"),
        (["--agents", "sm", "--seeds", "0", "0"], "--seeds: 0 is given twice"),
        (["--agents", "sm", "--seeds", "-1"], "seed=-1"),
        (["--agents", "sm", "--seats", "2"], "--seats 2 without --shared-budget"),
        (
            ["--agents", "sm", "--shared-budget", "1e9", "--seats", "2"],
            "seats=2: must lie between 1 and the number of agents, 1",
        ),
        (["--agents", "sm", "--shared-budget", "0"], "a budget must be positive"),
        (["--agents", "sm", "--flops-budget", "-1"], "flops_budget=-1.0: a budget must be positive"),
        (["--agents", "sm", "--set", "flops_budget=9"], "write --flops-budget"),
        (["--agents", "sm", "--set", "shared_flops_budget=9"], "write --shared-budget"),
        (["--agents", "sm", "--set", "colour=red"], "'colour': agent 'sm' has no such hyper-parameter"),
        (["--agents", "sm", "--set", "ticks"], "--set: 'ticks' is not key=value"),
        (["--agents", "sm", "--threads", "0"], "--threads 0: must be 1 to 1024"),
    ],
)
def test_bad_input_gets_one_message_with_the_rule_and_status_2(capsys, tmp_path, arguments, message):
    status, out, err = run(capsys, *QUICK, *arguments, "--out", str(tmp_path))
    assert (status, out) == (2, "")
    assert "alma arena:" in err
    assert message in err
    assert list(tmp_path.iterdir()) == []


OWN = """
import agents
from agents.policies.waiting import RandomWait


def twin(env, *, width=4, epochs=1, seed=0):
    return agents.make("sm", env, width=width, epochs=epochs, seed=seed)


class Fails:
    def __init__(self, learner, seed):
        self.learner, self.seed = learner, seed

    def __getattr__(self, name):
        return getattr(self.learner, name)

    def train(self, train, valid):
        if self.seed == 1:
            raise ValueError("no weights")
        return self.learner.train(train, valid)


def fails_at_seed_1(env, *, epochs=1, seed=0):
    agent = twin(env, epochs=epochs, seed=seed)
    return agents.AnytimeAgent(Fails(agent.learner, seed), agent.policy, env.ticks)


def fails(env, *, epochs=1):
    raise ValueError("no network")


def random(env, *, policy=None, epochs=1, seed=0):
    return agents.make("sm", env, policy=policy or RandomWait(0.5, seed=seed), width=4, epochs=epochs, seed=seed)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "entrant.py").write_text(OWN)
    return tmp_path / "entrant.py"


def test_an_agent_of_ones_own_plays_as_the_same_agent_of_the_paper(own, capsys, no_own_code):
    specs = ["entrant.py:twin:width=8", "sm:width=8", "sm:width=4"]
    assert run(capsys, *QUICK, "--agents", *specs)[0] == 0
    (file,) = own.parent.rglob("standings.json")
    written = json.loads(file.read_text())
    assert [place["rank"] for place in written["standings"]] in ([1, 1, 3], [1, 2, 2])
    twin, paper, _ = (written["scores"][spec]["0"] for spec in specs)
    assert (twin["cer"], twin["comp"]) == (paper["cer"], paper["comp"])
    code = written["config"]["agents"][specs[0]]["code"]
    assert (code["file"], code["function"]) == ("entrant.py", "twin")
    # Another content of the file is another tournament.
    own.write_text(OWN + "\n")
    no_own_code()
    assert run(capsys, *QUICK, "--agents", *specs)[0] == 0
    assert len(list(own.parent.rglob("standings.json"))) == 2


def test_more_seeds_continue_in_one_folder_although_the_seed_of_a_policy_is_that_of_the_run(own, capsys):
    words = [*QUICK, "--agents", "entrant.py:random", "sm"]
    assert run(capsys, *words, "--seeds", "0")[0] == 0
    (first,) = own.parent.rglob("seed0/entrant*.jsonl")
    before = first.read_text()
    assert run(capsys, *words, "--seeds", "0", "1")[0] == 0
    assert len(list(own.parent.rglob("standings.json"))) == 1
    assert first.read_text() == before
    # A seed that the user writes distinguishes tournaments.
    for seed in (0, 1):
        assert run(capsys, *QUICK, f"policy=random:seed={seed}", "--agents", "entrant.py:random")[0] == 0
    assert len(list(own.parent.rglob("standings.json"))) == 3


def test_an_error_of_an_own_agent_has_its_place_and_keeps_finished_streams(own, capsys):
    status, _, err = run(capsys, *QUICK, "--agents", "entrant.py:fails_at_seed_1", "sm", "--seeds", "0", "1")
    assert status == 2
    assert "entrant.py, line 19, in Fails.train" in err
    assert "ValueError: no weights" in err
    assert {path.parent.name for path in own.parent.rglob("*.jsonl")} == {"seed0"}
    status, _, err = run(capsys, *QUICK, "--agents", "entrant.py:fails")
    assert status == 2
    assert "entrant.py, line 29, in fails" in err
    assert "ValueError: no network" in err


def test_an_own_agent_without_settings_of_a_stage_cannot_bid(own, capsys):
    bids = ["--shared-budget", "1e8"]
    status, _, err = run(capsys, *QUICK, "--agents", "entrant.py:fails_at_seed_1", "sm", *bids)
    assert status == 2
    assert "config['stage'] has no epochs, updates, batch_size, keep_initial, patience" in err
    assert "use a flops_budget" in err


def test_an_unknown_environment_is_refused(capsys):
    status, _, err = run(capsys, "arena", "Digit-ALMA-v0", "--agents", "sm")
    assert status == 2
    assert "unknown environment; the ids are" in err


def test_on_a_terminal_a_bar_moves(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", True)
    status, out, _ = run(capsys, *QUICK, "--agents", "sm:width=2", "sm:width=3", "--out", str(tmp_path))
    assert status == 0
    assert "tick 4/4" in out
    assert "leads with CER" in out


def test_without_pettingzoo_the_command_names_the_extra(capsys, monkeypatch):
    for module in ("agents.cli.arena", "agents.arena.tournament", "alma_env.arena", "alma_env.arena.arena"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(agents.arena, "tournament")
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    status, _, err = run(capsys, *QUICK, "--agents", "sm")
    assert status == 2
    assert how_to_install("rl") in err
