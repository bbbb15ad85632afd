"""``--agent FILE.py:FUNCTION``: agents of the user on the command line, in runs and in sweeps."""

from __future__ import annotations

import json
import sys

import pytest

import agents
import alma_env
from agents.analysis import seed_groups, tables
from agents.analysis.schedules.waiting_comparison import compare
from agents.catalogue import own_code
from agents.catalogue.spec import RunSpec
from agents.cli import main
from agents.runs import load
from agents.sweeps import jobs

CODE = """
import agents

def make_agent(env, *, width=4, wait=2, policy=None, seed=0, epochs=1):
    when = {"wait": wait} if policy is None else {"policy": policy}
    return agents.make("sm", env, width=width, seed=seed, epochs=epochs, **when)

def of_the_board(env):
    return agents.make("sm", env, width=4, wait=2, epochs=1, seed=env.run_seed)

def plain(env):
    return object()

def without_env():
    return object()

def further(env, depth):
    return object()

def half(env):
    class Half:
        predictor = agents.make("sm", env, width=4).predictor
        grow = restart = load_state_dict = None
    return agents.AnytimeAgent(Half(), agents.FixedWait(1), env.ticks, {})
"""
BROKEN = """
from agents import AnytimeAgent, FixedWait, make

class Learner:
    def __init__(self, learner, error):
        self.predictor, self.error = learner.predictor, error

    def train(self, train, valid):
        raise self.error

def never_works(now):
    return now.pending >= "abc"


def in_train(env, error):
    error = eval(error)("shape is wrong")
    return AnytimeAgent(Learner(make("sm", env, width=4), error), FixedWait(1), env.ticks, {"id": "broken"})

def in_policy(env):
    return make("sm", env, width=4, policy=never_works)

def in_our_check(env):
    return make("sm", env, width=4, epochs="abc")

def in_forward(env):
    agent = make("sm", env, width=4)
    agent.predictor.forward = forward
    return agent

def forward(x):
    raise KeyError("hidden")

Learner.grow = Learner.restart = Learner.state_dict = Learner.load_state_dict = None
"""
FAILING = """
import torch
from torch import nn

import agents
from alma_env import meter

class Network(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1).float())

class Learner:
    def __init__(self, what):
        self.predictor, self.what, self.trainings = Network(64, 10), what, 0

    def train(self, train, valid):
        self.trainings += 1
        weight = self.predictor.weight
        self.predictor(train.x).sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=1e-5)
            if self.trainings == 2 and self.what == "nan":
                weight.fill_(float("nan"))
        if self.trainings == 2 and self.what == "shape":
            self.predictor = Network(64, 7)
        if self.trainings == 2 and self.what == "error":
            raise KeyError("hidden")
        if self.trainings == 2 and self.what == "declared":
            meter.running().declare(-1, reason="my own kernel")
        return None if self.trainings == 2 and self.what == "report" else agents.StageReport((0.5,), (0.1,), 1)

    def grow(self, train, valid):
        pass

    def restart(self):
        pass

    def state_dict(self):
        return self.predictor.state_dict()

    def load_state_dict(self, state):
        self.predictor.load_state_dict(state)

def at_seed_1(env, *, what="", seed=0):
    return agents.AnytimeAgent(Learner(what if seed == 1 else ""), agents.FixedWait(1), env.ticks)

def with_a_tensor(env, *, seed=0):
    config = {"network": {"scale": torch.zeros(2)}}
    return agents.AnytimeAgent(Learner(""), agents.FixedWait(1), env.ticks, config)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path / "mine.py"


def configs(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("config.json"))]


def run(*words) -> int:
    return main(["run", "--out", "runs", *map(str, words)])


def test_a_run_gives_the_function_its_options_and_records_its_code(file, capsys):
    words = ["--agent", "mine.py:make_agent", "--width", 8, "--seeds", 0, 1, "--set", "ticks=4", "epochs=2"]
    assert run(*words) == 0
    first, second = configs(file.parent)
    assert {first["seed"], second["seed"]} == {0, 1} == {first["agent"]["seed"], second["agent"]["seed"]}
    assert first["agent"]["width"] == 8
    assert first["agent"]["stage"]["epochs"] == 2
    assert first["agent"]["code"]["file"] == "mine.py"
    # The ledger is that of the same agent without the command line.
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    ledger = agents.run(env, agents.make("sm", env, width=8, wait=2, epochs=2, seed=0), seed=0)
    found = alma_env.Ledger.from_json(next(file.parent.rglob("*seed0*/ledger.jsonl")).read_text())
    assert [row.error for row in found] == [row.error for row in ledger]


def test_another_content_of_the_file_is_another_run(file, no_own_code):
    assert run("--agent", "mine.py:make_agent", "--set", "ticks=3") == 0
    file.write_text(CODE + "# changed\n")
    no_own_code()
    assert run("--agent", "mine.py:make_agent", "--set", "ticks=3") == 0
    assert len({config["agent"]["code"]["digest"] for config in configs(file.parent)}) == 2


def test_a_policy_reaches_the_function(file):
    assert run("--agent", "mine.py:make_agent", "--policy", "doubling", "--set", "ticks=4") == 0
    assert configs(file.parent)[0]["agent"]["policy"]["name"] == "doubling"


def test_schedules_of_an_own_agent_are_compared_with_each_other_by_seed(file):
    options = ["--agent", "mine.py:make_agent", "--seeds", 0, 1, "--set", "ticks=4"]
    assert run(*options, "--wait", 1, 2) == 0
    assert run(*options, "--policy", "doubling") == 0
    found, _ = load.find(file.parent / "runs")
    (one,) = compare(found)
    assert one.title == "Digits-ALMA-v0, sm 4"
    assert [schedule.cost.n for schedule in one.schedules] == [2, 2, 2]
    tardy = next(schedule for schedule in one.schedules if schedule is not one.best_fixed)
    assert one.against_best_fixed(tardy).n == 2
    (table,) = tables.compare(found)
    assert sorted(line.name for line in table.lines) == ["doubling(factor=2.0, first=1)", "w = 1", "w = 2"]


def test_the_function_of_a_submission_gets_the_seed_from_the_environment(file):
    assert run("--agent", "mine.py:of_the_board", "--seeds", 3, "--set", "ticks=3") == 0
    assert configs(file.parent)[0]["agent"]["seed"] == 3


def test_a_sweep_runs_own_agents_beside_others_and_recognises_finished_runs(file, capsys):
    words = ["--env", "Digits-ALMA-v0", "--agent", "mine.py:make_agent", "sm", "--wait", "2", "--width", "4"]
    words = ["sweep", *words, "--set", "ticks=3", "epochs=1", "--workers", "1", "--out", "runs"]
    assert main(words) == 0
    assert len(configs(file.parent)) == 2
    capsys.readouterr()
    assert main(words) == 0
    assert "2 of them from before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("agent", "options", "message"),
    [
        ("mine.py", [], "must be FILE.py:FUNCTION"),
        ("other.py:make_agent", [], "there is no file"),
        ("mine.py:nothing", [], "has no function 'nothing'"),
        ("mine.py:make_agent", ["--set", "momentum=0.5"], "has no parameter 'momentum'"),
        ("mine.py:of_the_board", ["--width", "4"], "has no parameter 'width'"),
        ("mine.py:plain", [], "must be an AnytimeAgent"),
        ("mine.py:half", [], "the learner Half has no train, state_dict; define what agents.Learner names"),
        ("mine.py:without_env", [], "cannot be called with the environment (too many positional arguments)"),
        ("mine.py:further", [], "missing a required argument: 'depth'"),
    ],
)
def test_what_the_function_cannot_do_is_said(file, capsys, agent, options, message):
    assert run("--agent", agent, *options) == 2
    assert message in capsys.readouterr().err
    assert not (file.parent / "runs").exists()


@pytest.mark.parametrize(
    ("function", "options", "place", "line"),
    [
        ("in_train", ["error=TypeError"], "mine.py, line 9, in Learner.train:", "raise self.error"),
        ("in_train", ["error=OSError"], "mine.py, line 9, in Learner.train:", "raise self.error"),
        ("in_policy", [], "mine.py, line 12, in never_works:", 'return now.pending >= "abc"'),
    ],
)
def test_an_error_in_the_file_has_its_place_and_the_traceback_of_the_file(file, capsys, function, options, place, line):
    file.write_text(BROKEN)
    assert run("--agent", f"mine.py:{function}", "--set", "ticks=2", *options) == 1
    message = capsys.readouterr().out
    assert place in message
    assert line in message
    assert "run_sweep.py" not in message


def test_a_predictor_that_raises_has_its_place_and_the_tick(file, capsys):
    file.write_text(BROKEN)
    assert run("--agent", "mine.py:in_forward", "--set", "ticks=2") == 1
    told = capsys.readouterr().out
    assert "sm 4, wait 1, seed 0: the run failed at tick 0: " in told
    assert "mine.py, line 31, in forward:" in told
    assert 'raise KeyError("hidden")' in told
    assert told.count("raised KeyError on a raw batch") == 1


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("report", "Learner.train returned None: must be an agents.StageReport"),
        ("shape", "returned shape (397, 7): logits must have shape"),
        ("nan", "must be comparable; try a training that changes the weights less"),
        ("declared", "flops=-1"),
    ],
)
def test_a_failed_run_is_named_with_its_tick_and_does_not_stop_the_others(file, capsys, what, message):
    file.write_text(FAILING)
    settings = ["ticks=3", f"what={what}"]
    assert run("--agent", "mine.py:at_seed_1", "--seeds", 0, 1, 2, "--set", *settings) == 1
    told = capsys.readouterr().out
    assert "seed 1: the run failed at tick 2: " in told
    assert message in told
    assert sorted(one.seed for one in load.find(file.parent / "runs")[0]) == [0, 2]
    spec = RunSpec("Digits-ALMA-v0", "mine.py:at_seed_1", seed=1, settings={"ticks": 3, "what": what})
    failed = jobs.run_job(0, jobs.Job(spec, 1, file.parent / "sweep"), jobs.Environments(), lambda _: None)
    assert failed.traceback.startswith("the run failed at tick 2: ")
    assert "Traceback" not in failed.traceback


def test_an_error_in_a_learner_does_not_stop_the_runs_of_other_seeds(file, capsys):
    file.write_text(FAILING)
    assert run("--agent", "mine.py:at_seed_1", "--seeds", 0, 1, 2, "--set", "ticks=3", "what=error") == 1
    told = capsys.readouterr().out
    assert "seed 1: the run failed at tick 2: KeyError in the code of the agent" in told
    assert told.count('raise KeyError("hidden")') == 1
    assert sorted(one.seed for one in load.find(file.parent / "runs")[0]) == [0, 2]


def test_a_value_of_the_configuration_that_json_cannot_hold_is_named(file, capsys):
    file.write_text(FAILING)
    assert run("--agent", "mine.py:with_a_tensor", "--set", "ticks=3") == 2
    assert "config['network.scale'] of type Tensor: the configuration of an agent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "place"),
    [("import nothing_of_this_name", "mine.py, line 1, in <module>:"), ("def make_agent(env)", "mine.py, line 1:")],
)
def test_a_file_that_cannot_be_imported_has_the_place_of_its_error(file, capsys, code, place):
    file.write_text(code)
    assert run("--agent", "mine.py:make_agent") == 2
    message = capsys.readouterr().err
    assert place in message
    assert code in message
    assert "importlib" not in message


def test_a_check_of_this_project_stays_one_line_when_the_file_gave_the_value(file, capsys):
    file.write_text(BROKEN)
    assert run("--agent", "mine.py:in_our_check") == 2
    message = capsys.readouterr().err
    assert message == "alma run: epochs='abc': must be a whole number; use for example epochs=100\n"


def test_a_failed_run_of_a_sweep_has_the_traceback_of_the_file(file, monkeypatch):
    file.write_text(BROKEN)
    job = jobs.Job(RunSpec("Digits-ALMA-v0", "mine.py:in_policy", settings={"ticks": 2}), 1, file.parent / "runs")
    failed = jobs.run_job(0, job, jobs.Environments(), lambda _: None)
    first, second, *_ = failed.traceback.splitlines()
    assert first == "the run failed at tick 1: TypeError in the code of the agent"
    assert second == "mine.py, line 12, in never_works:"
    assert "jobs.py" not in failed.traceback


def test_two_files_of_one_name_are_refused(file, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "mine.py").write_text(CODE)
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    own_code.make("mine.py:make_agent", env, 0, {})
    with pytest.raises(ValueError, match="another file of this name"):
        own_code.make("below/mine.py:make_agent", env, 0, {})


def test_a_file_that_changed_after_its_import_is_refused(file):
    spec = RunSpec("Digits-ALMA-v0", "mine.py:make_agent", settings={"ticks": 3})
    env = spec.make_env()
    spec.make_agent(env)
    file.write_text(CODE + "# changed\n")
    with pytest.raises(
        ValueError, match=r"mine\.py has changed since this process imported it.*start the command again"
    ):
        spec.make_agent(env)


def test_a_lambda_in_the_file_is_a_policy(file):
    file.write_text(
        "import agents\n\ndef make_agent(env):\n    return agents.make('sm', env, policy=lambda now: now.last)\n"
    )
    spec = RunSpec("Digits-ALMA-v0", "mine.py:make_agent", settings={"ticks": 3})
    assert spec.make_agent(spec.make_env()).config["policy"] == "mine.py: function"


def test_modules_of_one_name_in_two_folders_are_refused(file, monkeypatch):
    for folder, width in (("a", 4), ("b", 8)):
        (file.parent / folder).mkdir()
        (file.parent / folder / "sizes_of_mine.py").write_text(f"WIDTH = {width}\n")
        body = "return agents.make('sm', env, width=sizes_of_mine.WIDTH)"
        code = "import agents, sizes_of_mine\n\ndef of_{0}(env):\n    " + body + "\n"
        (file.parent / folder / f"in_{folder}.py").write_text(code.format(folder))
    monkeypatch.delitem(sys.modules, "sizes_of_mine", raising=False)
    (file.parent / "b" / "in_a.json").write_text("{}")  # no module
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    assert own_code.make("a/in_a.py:of_a", env, 0, {}).config["width"] == 4
    with pytest.raises(ValueError, match=r"b/sizes_of_mine\.py: .*a/sizes_of_mine\.py has the same name.*rename"):
        own_code.make("b/in_b.py:of_b", env, 0, {})


def test_an_agent_with_the_name_of_a_method_is_none_of_its_kind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("gmoe", "oracle"):
        (tmp_path / f"{name}.py").write_text(
            "import agents\n\n"
            "def make_agent(env, seed=0):\n"
            "    learner = agents.make('sm', env, width=4, seed=seed, epochs=1).learner\n"
            "    return agents.AnytimeAgent(learner, agents.FixedWait(2), env.ticks, {'policy': 'fixed'})\n"
        )
        run = ["run", "--agent", f"{name}.py:make_agent", "--set", "ticks=4", "--out", name]
        assert main(run) == 0
    capsys.readouterr()
    assert main(["plot", "gating", "gmoe"]) == 2
    assert "gmoe" in capsys.readouterr().err
    groups, _ = seed_groups.find_seed_groups(load.find("gmoe", "oracle")[0])
    assert [(group.agent, group.method_id) for group in groups] == [("gmoe", None), ("oracle", None)]
