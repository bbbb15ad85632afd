"""Learned schedules: their environment, their training, and their play tick by tick."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import agents
import alma_env
from agents.cli import main
from agents.policies.learned_schedule import LearnedSchedule, ScheduleNetwork
from agents.policies.next_training import MENUS, WITH_GROWTH, WITHOUT_GROWTH, NextTraining
from agents.policies.priced_features import FEATURES, NAMES
from agents.policies.progress import Progress, megabatches_of
from agents.policies.specs import policy_from
from agents.rl.learning.train_schedule import train_schedule
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.next_training_env import NextTrainings, NextTrainingVectorEnv
from agents.rl.surrogates.reference_costs import ReferenceCosts
from agents.rl.surrogates.tuning import simulate

from ..synthetic import TICKS, network_of


@pytest.fixture(scope="module")
def growing(model):
    """A learner that grows up to twice."""
    warm = model.warm.copy()
    warm[-5:-3] = -0.5  # a growth step lowers the error, the more the larger the training
    return dataclasses.replace(
        model, grows=True, warm=warm, parameters=np.array([100.0, 220.0, 330.0]), flops=np.repeat(model.flops, 3, 0)
    )


def test_a_next_training_is_at_least_one_tick_later():
    for menu in MENUS:
        for decision, one in enumerate(menu.trainings):
            first = max(np.ceil(one.factor - 1), 1)
            assert menu.next_ticks(decision, 0, 200) == first
            assert menu.next_ticks(decision, 0, 3) == min(first, 3)
            for last in (1, 7, 100):
                expected = max(last + 1, np.ceil(one.factor * last - 1e-9))
                assert menu.next_ticks(decision, last, 200) == pytest.approx(expected)
        assert menu.next_ticks(menu.stop, 3, 200) == np.inf
        assert menu.next_ticks(menu.stop, 0, 3) == np.inf


def play(env, decisions):
    """The rewards and the last infos of an episode in which ``decisions`` are made in turn."""
    rewards, infos = [], {}
    for decision in decisions:
        _, reward, ended, _, infos = env.step([decision])
        rewards.append(reward[0])
        if ended[0]:
            return rewards, infos["final_info"]["cer"][0]
    raise AssertionError("the episode did not end")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("learner", ["model", "growing"])
def test_an_episode_equals_the_same_trainings_tick_by_tick(learner, seed, request):
    model = request.getfixturevalue(learner)
    draw = np.random.default_rng(seed)
    env = NextTrainingVectorEnv(1, [model], pass_price=7.0, memory_price=0.25)
    menu = env.menu
    decisions = [int(one) for one in draw.integers(menu.stop, size=TICKS)]
    decisions[int(draw.integers(3, 8))] = menu.stop
    env.reset(seed=seed)
    rewards, cer = play(env, decisions)

    by_tick = DecisionSurrogateVectorEnv(1, models=[model], pass_price=7.0, memory_price=0.25)
    by_tick.reset(seed=seed)
    left, last, total = list(decisions), 0, 0.0
    for tick in range(1, TICKS + 1):
        due = bool(left) and tick == menu.next_ticks(left[0], last, TICKS)
        one = menu.trainings[left.pop(0) if due else 0]
        window = max(TICKS // 10, 1) if one.replay == "last" else None
        size = megabatches_of(tick, tick - last, replay=one.replay != "none", window=window)
        last = tick if due else last
        *_, reward, _, _, infos = by_tick.decide(*(np.array([value]) for value in (due, size, one.restart, one.grow)))
        total += reward[0]
    assert cer == pytest.approx(infos["final_info"]["cer"][0])
    assert sum(rewards) * env._references(np.array([0]), 7.0, 0.25)[0] == pytest.approx(total)


def test_a_mask_starts_some_episodes_again_and_leaves_the_observations_of_the_others(model):
    env = NextTrainingVectorEnv(3, [model], pass_price=7.0)
    first, _ = env.reset(seed=0)
    seen, *_ = env.step([2, 2, 2])
    again, infos = env.reset(options={"reset_mask": np.array([True, False, True])})
    assert np.array_equal(again, [first[0], seen[1], first[2]])
    assert infos["comp"].tolist()[::2] == [0, 0]
    after, *_ = env.step([2, 2, 2])
    assert after in env.observation_space


@pytest.mark.parametrize("decisions", [[], [2], [2, 5]])
def test_the_last_observation_is_that_after_the_last_training(model, decisions):
    env = NextTrainingVectorEnv(1, [model], pass_price=7.0)
    observations, _ = env.reset(seed=0)
    for decision in decisions:
        observations, *_ = env.step([decision])
    *_, infos = env.step([env.menu.stop])
    assert np.array_equal(infos["final_obs"][0], observations[0])


def test_an_episode_costs_as_much_as_its_schedule(model):
    env = NextTrainingVectorEnv(256, [model], pass_price=3.0)
    env.reset(seed=0)
    scale = ReferenceCosts.of([model])(np.zeros(1, int), 3.0, 0.0)[0]
    often = np.full(256, WITHOUT_GROWTH.trainings.index(NextTraining(1.25, "all")))
    costs = np.zeros(256)
    for _ in range(TICKS):
        _, rewards, ended, _, _ = env.step(often)
        costs -= rewards * scale
        if ended.all():  # after the training at tick 19
            break
    known = simulate([model], "geometric:factor=1.25,replay=all,stop=0.95", 256).costs(3.0)
    assert costs.mean() == pytest.approx(known.mean())
    assert scale < known.mean()  # simpler schedules cost less


def test_trainings_can_be_lists_of_numbers_and_are_checked(model):
    of_numbers, of_words = (NextTrainingVectorEnv(2, [model]) for _ in range(2))
    for env in (of_numbers, of_words):
        env.reset(seed=0)
        env.step([0, 0])
    tick, none = np.array([5.0, np.inf]), np.array(["none", "none"])
    for wrong, message in (
        ({"tick": np.array([5.0, np.nan])}, "tick=nan of episode 1: the next training must be after the last one"),
        ({"replay": np.array(["all", "some"])}, "replay='some' of episode 1: must be one of none, last, all"),
        ({"restart": [True]}, "1 next trainings: must be one for each of 2 episodes"),
    ):
        trainings = {"tick": tick, "replay": none, "restart": [False] * 2, "grow": [False] * 2} | wrong
        with pytest.raises(ValueError, match=message):
            of_words.train_at(NextTrainings(**trainings))
    later = np.array([5.0, 6.0])
    seen = of_numbers.train_at(NextTrainings(later, none, np.array([0, 1]), np.array([0, 0])))[0]
    assert np.array_equal(seen, of_words.train_at(NextTrainings(later, none, [False, True], [False, False]))[0])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("learner", ["model", "growing"])
def test_a_run_plays_what_the_network_decides_in_the_environment(learner, seed, tmp_path, request):
    model = request.getfixturevalue(learner)
    env = NextTrainingVectorEnv(1, [model], pass_price=20.0)
    network = network_of(seed, menu=env.menu)
    observations, _ = env.reset(seed=seed)
    trained = []
    for _ in range(TICKS):
        before = env._stages[0]
        observations, _, ended, _, _ = env.step(network.decide(observations))
        if ended[0]:
            break
        assert env._stages[0] == before + 1
        trained.append((int(env._tick[0]), int(env._size[0]), int(env._grown[0])))

    network.save(tmp_path / "schedule.npz")
    policy = policy_from(f"{tmp_path / 'schedule.npz'}:pass_price=20", grows=model.grows)
    by_tick = DecisionSurrogateVectorEnv(1, models=[model], pass_price=20.0)
    by_tick.reset(seed=seed)
    played, grown = [], 0
    for tick in range(1, TICKS + 1):
        now = progress(by_tick, tick)
        decision = policy(now)
        size = megabatches_of(tick, now.pending, replay=decision.replay, window=decision.window)
        grown += decision.grow
        if decision.train:
            played.append((tick, size, grown))
        by_tick.decide(*(np.array([value]) for value in (decision.train, size, decision.restart, decision.grow)))
    assert played[: len(trained)] == trained  # the last training of the episode ends it, and is not in `trained`
    assert len(played) <= len(trained) + 1


def progress(env, tick):
    """The progress of the only episode of a surrogate."""
    loss, error, earlier_loss, earlier_error = (None if np.isnan(one) else float(one) for one in env._validation[:, 0])
    return Progress(
        tick=tick,
        ticks=TICKS,
        pending=int(env._pending[0]),
        stages=int(env._stages[0]),
        validation_loss=loss,
        validation_error=error,
        previous_validation_loss=earlier_loss,
        previous_validation_error=earlier_error,
        processed_since_restart=int(env._processed[0]),
        last_size=int(env._size[0]),
        guess_loss=float(np.log(10)),
        parameters=int(env._parameters()[0]),
        first_parameters=100,
        flops=0,
    )


def test_the_rule_decides_where_the_network_was_not_trained(tmp_path):
    network = network_of(0)
    tick = NAMES.index("tick")
    network.high[tick] = 0.5
    network.save(tmp_path / "schedule.npz")
    policy = LearnedSchedule(tmp_path / "schedule.npz", pass_price=1e6)  # as the highest price of the training
    known = Progress(tick=9, ticks=20, pending=1, stages=1, guess_loss=2.3, parameters=9, first_parameters=9, flops=0)
    beyond = dataclasses.replace(known, tick=16, pending=4)
    assert policy(known).by == ""
    assert policy(beyond).by == "rule"
    assert policy(beyond).train  # the rule's last tick


def test_the_package_has_a_schedule_for_learners_that_grow_and_one_for_the_others(tmp_path):
    run = ["run", "--set", "epochs=5", "--width", "4", "--policy", "learned:pass_price=1", "--out", str(tmp_path)]
    assert all(main([*run, "--agent", name]) == 0 for name in ("sm", "gens"))
    single, growing = (
        [json.loads(line) for line in (folder / "stages.jsonl").read_text().splitlines()]
        for name in ("sm", "gens")
        for folder in tmp_path.glob(f"*/{name}4-*")
    )
    assert single[0]["by"] == growing[0]["by"] == ""
    assert any(stage["grow"] for stage in growing)
    assert not any(stage["grow"] for stage in single)


@pytest.mark.parametrize(("id", "grows"), [("sm", True), ("gens", False)])
def test_an_agent_gets_the_schedule_of_the_package_for_its_method(id, grows):
    env = alma_env.make("Digits-ALMA-v0")
    given = agents.make(id, env, policy=LearnedSchedule(pass_price=10, grows=grows)).config["policy"]
    assert given == agents.make(id, env, policy="learned:pass_price=10").config["policy"]


def test_the_rule_decides_for_a_learner_of_another_kind(growing, tmp_path):
    network = network_of(0)
    can_grow = NAMES.index("can_grow")
    network.low[can_grow] = network.high[can_grow] = 0  # trained without growth
    network.save(tmp_path / "schedule.npz")
    now = Progress(tick=1, ticks=20, pending=1, stages=0, guess_loss=2.3, parameters=9, first_parameters=9, flops=0)
    assert LearnedSchedule(tmp_path / "schedule.npz", grows=True)(now).by == "rule"
    assert LearnedSchedule(tmp_path / "schedule.npz")(now).by == ""


def test_a_network_learns_to_stop_when_passes_are_dear_and_a_file_keeps_it(model, tmp_path):
    pytest.importorskip("stable_baselines3")
    network = train_schedule([model], pass_price=(0.0, 100.0), steps=40_000, about={"learned_on": ["law"]})
    spent = []
    for price in (0.0, 100.0):
        env = NextTrainingVectorEnv(64, [model], pass_price=price)
        observations, _ = env.reset(seed=3)
        comp, going = np.zeros(64), np.ones(64, bool)
        for _ in range(TICKS):
            observations, _, ended, _, infos = env.step(network.decide(observations))
            comp[going] -= infos["vector_reward"][going, 1]
            going &= ~ended
        spent.append(comp.mean())
    assert spent[1] < 0.5 < spent[0]
    network.save(tmp_path / "schedule.npz")
    again = ScheduleNetwork.read(tmp_path / "schedule.npz")
    seen = np.random.default_rng(0).random((50, len(FEATURES)), np.float32)
    assert (again.decide(seen) == network.decide(seen)).all()
    assert (again.low == network.low).all()
    assert again.about["learned_on"] == ["law"]
    assert again.about["pass_price"] == [0.0, 100.0]


def test_a_network_learns_to_grow_when_memory_is_free_and_not_when_it_is_dear(growing):
    pytest.importorskip("stable_baselines3")
    prices = {"pass_price": (1.0, 1.0), "memory_price": (0.0, 1.0)}
    network = train_schedule([growing], **prices, steps=100_000)
    grown = []
    for price in (0.0, 1.0):
        env = NextTrainingVectorEnv(64, [growing], pass_price=1.0, memory_price=price)
        observations, _ = env.reset(seed=3)
        size, going = np.ones(64), np.ones(64, bool)
        for _ in range(TICKS):
            observations, _, ended, _, _ = env.step(network.decide(observations))
            size[going] = np.maximum(size, env._parameters() / 100)[going]
            going &= ~ended
        grown.append(size.mean())
    assert network.menu is WITH_GROWTH
    assert grown[1] < 1.1 < grown[0]


def test_a_schedule_for_one_price_can_be_read_again(model, tmp_path):
    pytest.importorskip("stable_baselines3")
    train_schedule([model], pass_price=40, steps=1).save(tmp_path / "schedule.npz")
    policy = LearnedSchedule(tmp_path / "schedule.npz", pass_price=40.0)
    assert ScheduleNetwork.read(policy.path).about["pass_price"] == [40.0, 40.0]


@pytest.mark.parametrize("seed", [-1, 2**33])
def test_a_seed_that_the_libraries_cannot_use_is_refused(model, seed):
    with pytest.raises(ValueError, match=f"seed={seed}: must be from 0 to .*; use seed=0"):
        train_schedule([model], steps=1, seed=seed)


def test_a_model_that_cannot_replay_is_refused(model):
    for change in ({"replays": False}, {"restarts": False}):
        poor = dataclasses.replace(model, **change)
        for use in (
            lambda models: train_schedule(models, steps=1),
            lambda models: NextTrainingVectorEnv(1, models),
            lambda models: simulate(models, "geometric:replay=all", 2),
            lambda models: simulate(models, "geometric:restart=0.1", 2),
        ):
            with pytest.raises(ValueError, match="model 1: .*a schedule decides about replay and restarts"):
                use([model, poor])
    assert simulate([poor], "geometric", 2).cer.shape == (2,)


def test_models_can_be_any_iterable_and_must_be_some(growing):
    assert NextTrainingVectorEnv(1, iter([growing])).menu is WITH_GROWTH
    for wrong in (None, []):
        with pytest.raises(ValueError, match="models=.*: must be a list with at least one TrainingModel; give agents"):
            NextTrainingVectorEnv(1, wrong)


def test_commands_learn_run_and_judge_a_schedule(tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    file, out = tmp_path / "schedule.npz", str(tmp_path / "runs")
    words = ["policy", "train-schedule", "Digits-ALMA-v0", "--width", "4", "--steps", "2e4", "--out", str(file)]
    assert main(words) == 0
    assert "learned on Digits-ALMA-v0: sm 4" in capsys.readouterr().out
    run = ["run", "--width", "4", "--set", "epochs=5", "ticks=10", "--seeds", "0", "1", "--out", out]
    assert main([*run, "--policy", f"{file}:pass_price=10", f"{file}:pass_price=40", "doubling"]) == 0
    assert main([*run, "--wait", "1", "5"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = told["rivalries"]
    assert [front["schedules"] for front in told["fronts"]] == ["learned", "fixed waits", "all other schedules"]
    assert all(0 < front["hypervolume"]["mean"] < 1 for front in told["fronts"][1:])
    assert {(row["rival"], row["pass_price"]) for row in rows} == {
        (rival, price) for rival in ("best fixed wait", "doubling", "best schedule") for price in (10.0, 40.0)
    }
    for row in rows:
        assert row["difference"]["mean"] == pytest.approx(row["cost"]["mean"] - row["rival_cost"]["mean"])
    doubling = {row["pass_price"]: row["rival_cost"]["mean"] for row in rows if row["rival"] == "doubling"}
    assert doubling[40.0] - doubling[10.0] == pytest.approx(30, rel=0.05)  # it trains once on each mega-batch
    assert main(["policy", "judge", out, "--picture", str(tmp_path / "drawn" / "rivals.png")]) == 0
    assert (tmp_path / "drawn" / "rivals.png").stat().st_size > 10_000
    assert "Holm's correction over the prices" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.zip"], "let its name end in .npz"),
        (["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--steps", "inf"], "--steps inf: must be"),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--pass-price", "5", "1"],
            "--pass-price 5 1: must be two ascending prices",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--memory-price", "0.5", "0.1"],
            "--memory-price 0.5 0.1: must be two ascending prices from 0 on, such as 0 0.1",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--learner", "gens", "gmeo"],
            "--learner gmeo: no given stream has runs of it; recorded are Digits-ALMA-v0: gens, gmoe, sm",
        ),
        (
            ["policy", "judge", ".", "--subject", "doubling", "--pass-price", "1", "--memory-price", "-1"],
            "--memory-price -1: a price must be a finite number",
        ),
        (["policy", "judge", "."], "no ledger.jsonl in or below it"),
        (["run", "--policy", "missing.npz"], "policy='missing.npz': file not found"),
        (["run", "--policy", "learned:price=3"], "'price=3' is not a field"),
    ],
)
def test_wrong_words_are_refused(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_file_of_another_kind_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a learned schedule of this version"):
        LearnedSchedule(tmp_path / "other.npz")
    small = network_of(0)
    short = dataclasses.replace(small, layers=small.layers[:1])
    short.save(tmp_path / "short.npz")
    with pytest.raises(ValueError, match="layers of shapes"):
        LearnedSchedule(tmp_path / "short.npz")
    endless = small.layers[0][0] * np.float32(np.nan), small.layers[0][1]
    for name, part in (("weights", {"layers": (endless, *small.layers[1:])}), ("range", {"low": small.low - np.inf})):
        dataclasses.replace(small, **part).save(tmp_path / f"{name}.npz")
        with pytest.raises(ValueError, match="weights or a range that are not finite"):
            LearnedSchedule(tmp_path / f"{name}.npz")
    for number, part in enumerate(({"about": {}}, {"low": small.low[:3]}, {"high": small.high.astype(float)})):
        dataclasses.replace(small, **part).save(tmp_path / f"{number}.npz")
        with pytest.raises(ValueError, match="not a learned schedule"):
            LearnedSchedule(tmp_path / f"{number}.npz")
    small.save(tmp_path / "small.npz")
    whole = (tmp_path / "small.npz").read_bytes()
    for cut in (0, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="not a learned schedule"):
            LearnedSchedule(tmp_path / "cut.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(ValueError, match="not a learned schedule"):
        LearnedSchedule(tmp_path / "array.npz")
    with pytest.raises(ValueError, match="pass_price=-1"):
        LearnedSchedule(tmp_path / "small.npz", pass_price=-1)
