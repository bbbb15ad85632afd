"""The second decision environment and its surrogate: bookkeeping, prices, masks, checkers of other libraries."""

from __future__ import annotations

import dataclasses
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agents
import alma_env
from agents.policies import Decision
from agents.policies.choices import CHOICES
from agents.policies.learned.priced_features import NAMES
from agents.rl.environments.decision_env import DecisionEnv
from agents.rl.environments.full_pass import full_pass_flops
from agents.rl.models.regression import logit
from agents.rl.models.training_fit import fit_trainings
from agents.rl.models.training_model import TrainingModel, Trainings
from agents.rl.recorded import recordings
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateEnv, DecisionSurrogateVectorEnv
from alma_env.metering.meter import Meter

from ..synthetic import TICKS, waits

FAST = {"width": 4, "epochs": 1}
VALIDATION = [NAMES.index(name) for name in ("validation_loss", "validation_error", "loss_trend", "error_trend")]


def every_decision(choices: bool = True) -> TrainingModel:
    """A model of trainings that replay, restart and grow."""
    model = fit_trainings(waits(noise=0.1, seeds=(0, 1)))
    steps = np.arange(TICKS + 1)
    return dataclasses.replace(
        model,
        replays=choices,
        restarts=choices,
        grows=choices,
        parameters=100.0 * (1 + steps),
        flops=np.stack([0 * steps, 1e6 * (1 + steps)], -1),
        pass_flops=1e6 * TICKS,
    )


@pytest.fixture(scope="module")
def model() -> TrainingModel:
    return every_decision()


@pytest.mark.parametrize("learner", ["sm", "gens"])
def test_real_stream_and_surrogate_count_the_same(learner, model):
    """All features that do not depend on validation are equal after the same choices, and so are the masks."""
    real = DecisionEnv("Digits-ALMA-v0", learner, pass_price=7.0, memory_price=0.25, **FAST)
    model = dataclasses.replace(model, grows=learner == "gens", free_growth=True)
    model = dataclasses.replace(model, parameters=330.0 * (1 + np.arange(TICKS + 1)))
    ours = DecisionSurrogateVectorEnv(1, models=[model], pass_price=7.0, memory_price=0.25)
    seen, info = real.reset(seed=0)
    simulated, infos = ours.reset(seed=0)
    draw = np.random.default_rng(1)
    counted = np.delete(np.arange(len(NAMES)), VALIDATION)
    same = ("tick", "ticks", "parameters", "pass_price", "memory_price")
    for tick in range(TICKS):
        assert {name for name in infos if f"_{name}" in infos} - {"final_obs", "final_info"} == set(info) - {"refused"}
        assert [infos[name][0] for name in same] == [info[name] for name in same]
        assert np.array_equal(info["action_mask"], infos["action_mask"][0])
        assert np.array_equal(info["action_mask"], real.action_masks())
        choice = draw.integers(len(CHOICES))
        seen, _, _, _, info = real.step(choice)
        simulated, _, _, _, infos = ours.step([choice])
        last = infos["final_obs"][0] if tick == TICKS - 1 else simulated[0]
        assert seen in real.observation_space
        assert np.allclose(seen[counted], last[counted], atol=1e-6), NAMES
    last = infos["final_info"]
    assert [last[name][0] for name in same] == [info[name] for name in same]
    assert np.array_equal(info["action_mask"], last["action_mask"][0])


def test_the_last_info_of_a_single_surrogate_describes_the_episode_that_ended(model):
    single = DecisionSurrogateEnv(models=[model])
    vector = DecisionSurrogateVectorEnv(1, models=[model], autoreset_mode="Disabled")  # it starts no other episode
    single.reset(seed=0)
    vector.reset(seed=0)
    for _ in range(TICKS):
        _, _, ended, _, info = single.step(1)
        *_, infos = vector.step([1])
    assert ended
    assert info["comp"] == infos["comp"][0] > 0
    assert info["cer"] == infos["cer"][0]
    assert info["action_mask"].tolist() == infos["action_mask"][0].tolist() == [True] * 10


def test_a_full_pass_costs_its_price_on_a_real_stream():
    env = DecisionEnv("Digits-ALMA-v0", pass_price=40.0, **FAST)
    env.reset(seed=0)
    total, errors = 0.0, 0.0
    for _ in range(20):
        _, reward, _, _, info = env.step(1)
        total, errors = total + reward, errors + info["error"]
    assert total == pytest.approx(-errors - 40.0)


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 5, "keep_initial": True}, {"epochs": 2, "updates": 20, "schedule": "linear"}],
)
def test_the_first_training_is_its_share_of_a_full_pass(settings):
    env = DecisionEnv("Digits-ALMA-v0", width=4, **settings)
    env.reset(seed=1)
    *_, info = env.step(1)
    assert -info["vector_reward"][1] == 1 / 20


def test_a_full_pass_is_the_same_in_all_episodes():
    """With patience, the trainings of different streams differ in length."""
    rewards = []
    for seeds in ((7,), (0, 7)):
        env = DecisionEnv("Digits-ALMA-v0", width=4, epochs=30, patience=1, ticks=10, pass_price=4.0)
        for seed in seeds:
            env.reset(seed=seed)
            _, reward, *_ = env.step(1)
        rewards.append(reward)
    assert rewards[0] == rewards[1]


def test_a_full_pass_of_trainings_with_patience_is_measured_to_their_end():
    env = alma_env.make("Digits-ALMA-v0")
    env.reset(seed=0)
    agent = agents.make("sm", env, width=4, epochs=60, patience=2)
    settings = agent.config["stage"] | {"width": 4}
    first = full_pass_flops("sm", env, settings) / env.ticks
    agent.gather(env.megabatch(1))
    with (meter := Meter()):
        agent.carry_out(Decision(train=True))
    assert first == meter.total
    assert first < full_pass_flops("sm", env, settings | {"patience": None}) / env.ticks


def test_a_full_pass_costs_its_price_on_a_surrogate(model):
    env = DecisionSurrogateVectorEnv(3, models=[model], pass_price=40.0, memory_price=0.5)
    env.reset(seed=0)
    total = np.zeros(3)
    for _ in range(TICKS):
        _, rewards, _, _, infos = env.step([1] * 3)
        total += rewards
        assert np.allclose(infos["vector_reward"][:, 2], -1)
    assert np.allclose(total, -(infos["final_info"]["cer"] - 0.9) - 40.0 - 0.5 * TICKS)


def test_a_price_can_be_a_number_of_numpy(model):
    rewards = []
    for price in (40, np.int64(40), np.float32(40)):
        env = DecisionSurrogateVectorEnv(2, models=[model], pass_price=price)
        env.reset(seed=0)
        rewards.append(env.step([1, 1])[1].tolist())
    assert rewards[0] == rewards[1] == rewards[2]


@pytest.mark.parametrize("ticks", [12, 20])
def test_the_picture_of_a_fixed_wait_has_its_last_training(ticks):
    shown = fit_trainings(waits(noise=0.1, seeds=(0, 1)))
    env = DecisionSurrogateVectorEnv(1, models=[dataclasses.replace(shown, ticks=ticks)])
    env.keep_course()
    env.reset(seed=0)
    drawn = env.view(0).fixed_waits
    assert drawn[5][ticks] != drawn[5][ticks - 1]  # at tick 12, it trains on two mega-batches


def test_growth_makes_memory_and_trainings_dearer(model):
    env = DecisionSurrogateVectorEnv(2, models=[model], pass_price=1.0, memory_price=1.0)
    env.reset(seed=0)
    env.step([1, 1])
    *_, infos = env.step([1, 7])
    assert infos["vector_reward"][:, 2].tolist() == [-1, -2]
    assert infos["vector_reward"][1, 1] == pytest.approx(2 * infos["vector_reward"][0, 1])


def test_prices_of_a_range_differ_by_episode_and_are_observed(model):
    env = DecisionSurrogateVectorEnv(4_000, models=[model], pass_price=(0, 100), memory_price=(0.1, 1))
    observations, _ = env.reset(seed=0)
    price, memory = (observations[:, NAMES.index(name)] for name in ("pass_price", "memory_price"))
    assert 0.05 < (price == 0).mean() < 0.15
    errors = np.expm1(price[price > 0] * np.log(1001))
    assert errors.min() > 0.0999
    assert errors.max() < 100.01
    assert 2 < np.median(errors) < 5  # the middle of a logarithmic range
    assert 0.0999 < memory.min() < memory.max() < 1.0001
    again, _ = env.reset(seed=0)
    assert np.array_equal(observations, again)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_the_last_tick_of_an_episode_is_charged_at_its_own_price(model, mode):
    env = DecisionSurrogateVectorEnv(
        16, models=[model], pass_price=(1, 100), memory_price=(0.1, 1), autoreset_mode=mode
    )
    env.reset(seed=0)
    prices = env._prices.copy()
    for _ in range(TICKS):
        _, rewards, ended, _, infos = env.step(np.ones(16, int))
        vectors = infos["vector_reward"]
        assert rewards == pytest.approx(vectors[:, 0] + prices[0] * vectors[:, 1] + prices[1] * vectors[:, 2])
    assert ended.all()
    if mode == "SameStep":
        assert not np.allclose(env._prices, prices)  # those of the next episode


def test_real_prices_are_drawn_from_the_seed():
    env = DecisionEnv("Digits-ALMA-v0", pass_price=(0.1, 100), **FAST)
    prices = [env.reset(seed=seed)[1]["pass_price"] for seed in (0, 1, 0)]
    assert prices[0] == prices[2] != prices[1]


def test_episodes_after_a_seeded_one_draw_other_prices_and_streams():
    """Stable-Baselines3 seeds an environment once, and then calls reset() for every episode."""
    env = DecisionEnv("Digits-ALMA-v0", pass_price=(0.1, 100), **FAST)
    sequences = []
    for _ in range(2):
        drawn = []
        for seed in (0, None, None, None):
            _, info = env.reset(seed=seed)
            drawn.append((info["pass_price"], env._seed))  # the seed of stream and learner
        sequences.append(drawn)
    assert sequences[0] == sequences[1]
    for values in zip(*sequences[0], strict=True):
        assert len(set(values)) == len(values)


def test_restart_begins_with_the_trainings_of_a_random_initialisation(model):
    env = DecisionSurrogateVectorEnv(2_000, models=[model])
    env.reset(seed=0)
    for _ in range(9):
        env.step([1] * 2_000)
    env.step([4] * 1_000 + [6] * 1_000)  # restart on one mega-batch, and on all ten
    one = Trainings(*([np.array([size])] for size in (0.0, 1.0, 10.0, 1.0, 9.0, 0.0, 0.0, 0.0))).__dict__
    cold = Trainings(**{name: np.ravel(value) for name, value in one.items()})
    expected = (cold.cold() @ model.cold)[0] + model.cold_residuals[0, :, 0].mean()
    assert abs(logit(env._error[:1_000]).mean() - expected) < 0.05
    assert env._error[1_000:].mean() < env._error[:1_000].mean()


def test_choices_that_no_recorded_run_has_are_masked():
    env = DecisionSurrogateVectorEnv(1, models=[every_decision(choices=False)])
    env.reset(seed=0)
    env.step([1])
    assert np.flatnonzero(env.action_masks()[0]).tolist() == [0, 1]


def test_a_choice_that_no_recorded_run_has_trains_without_replay_and_restart():
    """An algorithm without masks, such as PPO, must not learn on trainings that nobody recorded."""
    cers = []
    for choice in range(1, len(CHOICES)):
        env = DecisionSurrogateVectorEnv(8, models=[every_decision(choices=False)])
        env.reset(seed=0)
        for _ in range(TICKS):
            *_, infos = env.step(np.full(8, choice))
        cers.append(infos["final_info"]["cer"].tolist())
    assert cers == cers[:1] * len(cers)


def test_each_episode_draws_one_of_several_models(model):
    worse = dataclasses.replace(model, first_errors=np.full(64, 0.5))
    env = DecisionSurrogateVectorEnv(100, models=[model, worse])
    _, infos = env.reset(seed=0)
    assert set(infos["cer"]) == {0.9, 0.5}
    env.step([1] * 100)


@pytest.mark.parametrize("id", ["Digits-ALMA-Wait-v1", "Digits-ALMA-Wait-Surrogate-v1"])
def test_the_checkers_of_gymnasium_and_stable_baselines3_pass(id, tmp_path, recwarn):
    check_env_of_sb3 = pytest.importorskip("stable_baselines3.common.env_checker").check_env
    if "Surrogate" in id:
        recordings.save(waits(noise=0.1), tmp_path / "waits.npz")
        keywords = {"recorded": str(tmp_path / "waits.npz")}
    else:
        keywords = FAST
    env = gym.make(f"alma_env:{id}", pass_price=(0, 100), **keywords).unwrapped
    check_env(env, skip_render_check=True)
    check_env_of_sb3(env)
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)]
    assert env.action_masks().shape == (10,)


def test_the_surrogate_draws_its_episodes_with_fixed_waits(model):
    single = DecisionSurrogateEnv(models=[model], render_mode="rgb_array")
    single.reset(seed=0)
    single.step(1)
    assert single.render().shape == (420, 720, 3)
    waits = single.vector._simulate_waits(0)
    assert list(waits) == [1, 5, 10, 20]
    for wait, errors in waits.items():
        assert errors.shape == (TICKS + 1,)
        assert np.allclose(errors[:wait], 0.9)  # untrained
        assert errors[-1] < 0.8
    env = DecisionSurrogateVectorEnv(2, models=[model], render_mode="ansi")
    env.reset(seed=0)
    env.step([0, 1])
    assert ["trained" in line for line in env.render()] == [False, True]


def test_an_episode_goes_on_after_a_pickle():
    env = DecisionEnv("Digits-ALMA-v0", pass_price=(0.1, 10), **FAST)
    env.reset(seed=0)
    env.step(1)
    copy = pickle.loads(pickle.dumps(env))
    (seen, reward, *_, info), (other, same, *_, infos) = env.step(3), copy.step(3)
    assert np.array_equal(seen, other)
    assert (reward, info["pass_price"]) == (same, infos["pass_price"])


def test_wrong_arguments_are_refused(model):
    with pytest.raises(ValueError, match=r"pass_price=\(5, 1\): must be a price .* use pass_price=40"):
        DecisionSurrogateVectorEnv(1, models=[model], pass_price=(5, 1))
    with pytest.raises(ValueError, match=r"memory_price=-1: must be a price .* use memory_price=0.01 or"):
        DecisionEnv("Digits-ALMA-v0", memory_price=-1, **FAST)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'flops_price': an argument of Wait-v0"):
        DecisionEnv("Digits-ALMA-v0", flops_price=1, **FAST)
    with pytest.raises(ValueError, match="20, 5 mega-batches: one environment"):
        DecisionSurrogateVectorEnv(1, models=[model, dataclasses.replace(model, ticks=5)])
    with pytest.raises(ValueError, match=r"models=\[\]: must be a list with at least one TrainingModel"):
        DecisionSurrogateVectorEnv(1, models=[])
    env = DecisionSurrogateEnv(models=[model])
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action=10: not in"):
        env.step(10)
    many = DecisionSurrogateVectorEnv(2, models=[model])
    many.reset(seed=0)
    for wrong in (-1, 10):
        with pytest.raises(ValueError, match=f"action={wrong} of episode 1: .* outside the numbers from 0 to 9"):
            many.step([0, wrong])


def test_the_truth_value_of_an_action_is_its_number(model):
    of_bools, of_numbers = (DecisionSurrogateVectorEnv(2, models=[model]) for _ in range(2))
    of_bools.reset(seed=0)
    of_numbers.reset(seed=0)
    assert np.array_equal(of_bools.step(np.array([True, False]))[0], of_numbers.step(np.array([1, 0]))[0])
