"""Next trainings on surrogates: each step of an episode goes on to the next one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from agents.policies.learned.next_training import MENUS, WITH_GROWTH, WITHOUT_GROWTH, NextTraining
from agents.policies.progress import megabatches_of
from agents.rl.learning.train_schedule import train_schedule
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.next_training_env import NextTrainings, NextTrainingVectorEnv
from agents.rl.surrogates.reference_costs import ReferenceCosts
from agents.rl.surrogates.tuning import simulate

from ..synthetic import TICKS


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


def test_a_model_that_cannot_replay_is_refused(model):
    for change in ({"replays": False}, {"restarts": False}):
        poor = dataclasses.replace(model, **change)
        for use in (
            lambda models: train_schedule(models, steps=1),
            lambda models: NextTrainingVectorEnv(1, models),
        ):
            with pytest.raises(ValueError, match="model 1: .*must contain replay and restarts"):
                use([model, poor])


def after_trainings(env, restart, grow, count):
    """Errors, validation losses and validation errors of all episodes after each of ``count`` trainings."""
    env.reset(seed=0)
    found = []
    for tick in range(1, count + 1):
        later = np.full(env.num_envs, tick > 1)
        ticks, none = np.full(env.num_envs, float(tick)), np.full(env.num_envs, "none")
        _, _, _, _, infos = env.train_at(NextTrainings(ticks, none, later & restart, later & grow))
        found.append([infos["error"], *env._validation[:2].copy()])
    return np.moveaxis(np.array(found), 1, 0)


def test_a_dead_network_guesses_until_it_restarts(model):
    guess = 1 - np.exp(-model.guess_loss)
    env = NextTrainingVectorEnv(4000, [model], dead=0.25)
    errors, losses, wrong = after_trainings(env, restart=False, grow=False, count=4)
    dead = np.isclose(errors, guess)
    assert dead[0].mean() == pytest.approx(0.25, abs=0.03)
    assert (dead == dead[0]).all()
    assert losses[:, dead[0]].mean() == pytest.approx(model.guess_loss, rel=0.05)
    assert wrong[:, dead[0]].mean() == pytest.approx(guess, abs=0.02)
    errors, _, _ = after_trainings(env, restart=True, grow=False, count=2)
    first, second = np.isclose(errors, guess)
    assert second[first].mean() == pytest.approx(0.25, abs=0.05)
    assert second[~first].mean() == pytest.approx(0.25, abs=0.03)


def test_growth_ends_the_guesses_of_a_dead_network(growing):
    env = NextTrainingVectorEnv(500, [growing], dead=0.5)
    errors, _, _ = after_trainings(env, restart=False, grow=True, count=2)
    first, second = np.isclose(errors, 1 - np.exp(-growing.guess_loss))
    assert 0.4 < first.mean() < 0.6
    assert not second.any()


@pytest.mark.parametrize("dead", [-0.1, 1, float("nan")])
def test_a_share_of_dead_networks_that_is_no_probability_is_refused(model, dead):
    with pytest.raises(ValueError, match=f"dead={dead}: must be a probability from 0 to below 1, such as dead=0.01"):
        NextTrainingVectorEnv(1, [model], dead=dead)


def test_models_can_be_any_iterable_and_must_be_some(growing):
    assert NextTrainingVectorEnv(1, iter([growing])).menu is WITH_GROWTH
    for wrong in (None, []):
        with pytest.raises(ValueError, match="models=.*: must be a list with at least one TrainingModel; give agents"):
            NextTrainingVectorEnv(1, wrong)


def test_single_ticks_are_neither_decided_nor_waited_for(model):
    env = NextTrainingVectorEnv(2, models=[model])
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match=r"decide\(\): a decision is about one tick.*call train_at"):
        env.decide([True] * 2, [1] * 2, [False] * 2, [0] * 2)
    with pytest.raises(NotImplementedError, match=r"wait\(\): each step waits until the next training; call train_at"):
        env.wait(1)
    with pytest.raises(
        NotImplementedError, match=r"keep_course\(\): a step has many ticks; view an episode of Decision"
    ):
        env.keep_course()
