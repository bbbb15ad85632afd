"""The decision environment: equal runs as `alma run`, checkers of other libraries, observations, rewards, errors."""

from __future__ import annotations

import bz2
import json
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import agents
import alma_env
from agents.analysis.prices import reward_space
from agents.policies import Decision
from agents.policies.learned.features import NAMES, feature_space
from alma_env.text.stream import tiny_text

from ...ledgers import without_seconds
from ..small_env import ID, SMALL, make

pytest.importorskip("stable_baselines3")
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3
from stable_baselines3.common.env_util import make_vec_env


def play(env, actions, seed=0):
    """Return observations, rewards and infos of an episode; actions is a sequence or a function of the tick."""
    observation, info = env.reset(seed=seed)
    observations, rewards, infos = [observation], [], [info]
    for tick in range(1, env.unwrapped.alma.ticks + 1):
        action = actions(tick) if callable(actions) else actions[tick - 1]
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return np.stack(observations), rewards, infos


def run_of(agent_id, seed=0, **keywords):
    env = alma_env.make("Digits-ALMA-v0", ticks=SMALL["ticks"])
    return agents.run(env, agents.make(agent_id, env, width=8, epochs=2, seed=seed, **keywords), seed)


# --- checkers of other libraries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "actions"), [("Digits", "train"), ("Digits", "multi"), ("Digits", "flat"), ("Text", "train")]
)
def test_the_checkers_of_gymnasium_and_stable_baselines3_pass(stream, actions, recwarn, tmp_path):
    own = {"width": 8, "epochs": 1, "ticks": 4}
    if stream == "Text":
        documents = bz2.decompress(tiny_text().train.read_bytes()).decode().split("\n\n")
        for n, name in enumerate(("train", "valid", "test")):
            few = documents[12 * (n > 0) + n :][: 12 if n == 0 else 1]
            (tmp_path / f"{name}.txt").write_text("\n\n".join(few), encoding="utf-8")
            own[name] = str(tmp_path / f"{name}.txt")
        own |= {"width": 1, "updates": 2, "warmup": 0, "ticks": 2, "vocabulary_size": 260, "sequence_length": 16}
        own |= {"cache": str(tmp_path)}
    env = gym.make(f"alma_env:{stream}-ALMA-Wait-v0", actions=actions, **own)
    check_env(env.unwrapped, skip_render_check=(stream, actions) != ("Digits", "train"))  # once; it makes four more
    check_env_of_sb3(env.unwrapped)
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)]


def test_own_arrays_have_a_decision_environment_too():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(240, 6)).astype("float32"), rng.integers(0, 3, 240)
    env = gym.make("alma_env:Arrays-ALMA-Wait-v0", train=(x, y), test=(x, y), ticks=4, width=4, epochs=1)
    check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize(("algorithm", "settings"), [(PPO, {"n_steps": 12, "batch_size": 12}), (A2C, {}), (DQN, {})])
def test_algorithms_of_stable_baselines3_train_through_make_vec_env(algorithm, settings):
    env = make_vec_env(ID, n_envs=2, env_kwargs=SMALL)
    model = algorithm("MlpPolicy", env, seed=0, **settings).learn(24)
    assert model.num_timesteps >= 24
    assert env.envs[0].get_episode_lengths() == [SMALL["ticks"]] * len(env.envs[0].get_episode_lengths())


# --- actions --------------------------------------------------------------------------


@pytest.mark.parametrize(("wait", "replay"), [(1, False), (4, False), (2, True)])
@pytest.mark.parametrize("learner", ["sm", "gens"])
def test_actions_of_a_fixed_wait_give_the_ledger_of_alma_run(learner, wait, replay):
    env = make(learner=learner, replay=replay, grow=learner == "gens")
    play(env, lambda tick: int(tick % wait == 0 or tick == 6), seed=5)
    assert without_seconds(env.unwrapped.ledger) == without_seconds(run_of(learner, 5, wait=wait, replay=replay))


@pytest.mark.parametrize(
    ("actions", "codes"),
    [
        ("multi", {(0, 0, 0): [0, 1, 1], (1, 0, 0): [1, 0, 0], (1, 1, 0): [1, 1, 0], (1, 0, 1): [1, 0, 1]}),
        ("flat", {(0, 0, 0): 0, (1, 0, 0): 1, (1, 1, 0): 2, (1, 0, 1): 3}),
    ],
)
def test_every_action_makes_its_decision(actions, codes):
    wanted = [(1, 0, 0), (0, 0, 0), (1, 0, 1), (1, 1, 0), (0, 0, 0), (1, 0, 1)]
    env = make(learner="gens", actions=actions)
    play(env, [codes[one] if actions == "flat" else np.array(codes[one]) for one in wanted])
    ledger = run_of("gens", policy=lambda now: Decision(*map(bool, wanted[now.tick - 1])))
    assert without_seconds(env.unwrapped.ledger) == without_seconds(ledger)
    history = [(record.tick, record.replay, record.grow) for record in env.unwrapped.agent.history]
    assert history == [(1, False, 0), (3, False, 1), (4, True, 0), (6, False, 1)]


def test_an_action_does_not_grow_a_learner_that_cannot_grow():
    env = make(actions="multi")
    play(env, [np.array([1, 0, 1])] * 6)
    assert [record.grow for record in env.unwrapped.agent.history] == [0] * 6


def test_masks_mark_the_actions_that_have_no_effect_of_their_own():
    env = make(learner="gens", actions="flat").unwrapped
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True, True, False, False, False]
    env.step(0)
    assert env.action_masks().tolist() == [True, True, False, False, False]  # nothing but the gathered data
    env.step(1)
    assert env.action_masks().tolist() == [True] * 5
    cannot_grow = make(actions="multi").unwrapped
    cannot_grow.reset(seed=0)
    cannot_grow.step(np.array([1, 0, 0]))
    assert cannot_grow.action_masks().tolist() == [True, True, True, True, True, False]
    only_training = make().unwrapped
    only_training.reset(seed=0)
    assert only_training.action_masks().tolist() == [True, True]


def test_an_agent_that_always_waits_keeps_the_untrained_predictor():
    observations, _, infos = play(env := make(), [0] * 6)
    assert len({row.error for row in env.unwrapped.ledger}) == 1
    assert infos[-1]["comp"] == 0
    assert observations[-1][NAMES.index("pending")] == 1
    assert observations[-1][NAMES.index("trained")] == 0


# --- observations ---------------------------------------------------------------------------------


def test_observations_are_computed_as_documented():
    env = make()
    observations, _, infos = play(env, [0, 1, 0, 0, 1, 1], seed=2)
    records = env.unwrapped.agent.history
    before_5 = dict(zip(NAMES, observations[4].tolist(), strict=True))  # D_5 has arrived, one training is done
    ln_10, loss = np.log(10), records[0].validation_loss
    assert before_5 == pytest.approx(
        {
            "tick": 5 / 6,
            "log_tick": np.log(5) / np.log(6),
            "pending": 3 / 6,
            "log_pending": np.log(4) / np.log(7),
            "pending_share": 3 / 5,
            "trained": 1,
            "log_stages": np.log(2) / np.log(7),
            "validation_loss": loss / ln_10 / 2,
            "validation_error": records[0].validation_error,
            "loss_trend": 0,
            "error_trend": 0,
            "growth": 0,
            "flops": (np.log10(infos[4]["comp"]) - 6) / 12,
        },
        abs=1e-6,
    )
    before_6 = dict(zip(NAMES, observations[5].tolist(), strict=True))
    assert before_6["loss_trend"] == pytest.approx((loss - records[1].validation_loss) / ln_10, abs=1e-6)
    assert before_6["error_trend"] == pytest.approx(records[0].validation_error - records[1].validation_error, abs=1e-6)


def test_the_growth_feature_is_the_share_of_new_parameters():
    env = make(learner="gens", grow=True)
    observations, _, infos = play(env, [1] * 6)
    share = 1 - infos[0]["parameters"] / infos[5]["parameters"]
    assert observations[5][NAMES.index("growth")] == pytest.approx(share, abs=1e-6)


def test_observations_do_not_depend_on_the_test_set():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(240, 6)).astype("float32"), rng.integers(0, 3, 240)
    common = {"train": (x, y), "ticks": 4, "width": 4, "epochs": 2}
    one, other = (
        play(gym.make("alma_env:Arrays-ALMA-Wait-v0", test=(x, labels), **common), [1, 0, 1, 1])
        for labels in (y, (y + 1) % 3)
    )
    assert np.array_equal(one[0], other[0])
    assert one[1] != other[1]


def test_observations_of_any_episode_lie_in_the_space():
    env = make(learner="gens", actions="flat")
    env.action_space.seed(0)
    observations, *_ = play(env, lambda tick: env.action_space.sample())
    assert all(feature_space().contains(observation) for observation in observations)


# --- rewards ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prices", [(0.0, 0.0), (1e3, 0.0), (0.0, 7.0), (1e3, 7.0)])
def test_a_reward_is_minus_error_flops_and_parameters_at_their_prices(prices):
    env = make(flops_price=prices[0], parameter_price=prices[1])
    _, rewards, infos = play(env, [0, 1, 0, 0, 1, 1])
    rows = env.unwrapped.ledger.rows[1:]
    expected = [-(r.error + prices[0] * r.comp / 1e12 + prices[1] * r.parameters / 1e6) for r in rows]
    assert rewards == pytest.approx(expected)
    vectors = np.stack([info["vector_reward"] for info in infos[1:]])
    assert vectors[:, 0] == pytest.approx([-row.error for row in rows])
    assert vectors[:, 1] == pytest.approx([-row.comp / 1e12 for row in rows])
    assert vectors[:, 2] == pytest.approx([-row.parameters / 1e6 for row in rows])
    assert all(reward_space().contains(vector) for vector in vectors)
    assert infos[-1]["cer"] == pytest.approx(env.unwrapped.ledger.score().cer)


def test_the_ids_of_vector_rewards_return_the_vector_of_the_info():
    env = gym.make("alma_env:Digits-ALMA-Wait-MO-v0", **SMALL)
    env.reset(seed=0)
    _, reward, *_, info = env.step(1)
    assert reward in env.unwrapped.reward_space
    assert np.array_equal(reward, info["vector_reward"])
    with pytest.raises(AttributeError, match="reward_space: the rewards of this environment are numbers"):
        make().unwrapped.reward_space  # noqa: B018 - the property raises


def test_a_reward_on_validation_uses_all_validation_parts_and_does_not_change_the_ledger():
    actions = [0, 1, 0, 1, 0, 0]
    on_test, on_validation = make(), make(reward_on="validation")
    play(on_test, actions, seed=4)
    _, _, infos = play(on_validation, actions, seed=4)
    assert without_seconds(on_test.unwrapped.ledger) == without_seconds(on_validation.unwrapped.ledger)
    alma = on_validation.unwrapped.alma
    x, y = (np.concatenate([alma.megabatch(t)["valid"][name] for t in range(1, 7)]) for name in ("x", "y"))
    with torch.no_grad():
        wrong = on_validation.unwrapped.agent.predictor(torch.from_numpy(x)).argmax(1).numpy() != y
    assert -infos[-1]["vector_reward"][0] == pytest.approx(wrong.mean())
    assert -infos[1]["vector_reward"][0] != infos[1]["error"]


def test_an_exceeded_budget_ends_the_episode_with_all_remaining_ticks_in_the_reward():
    """Stable-Baselines3 adds the value of the last observation to the reward of a truncated episode."""
    env = make(flops_budget=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(1)
    assert (terminated, truncated) == (True, False)
    untrained = env.unwrapped.ledger[0].error
    assert reward == pytest.approx(-6 * untrained)
    assert info["refused"]
    with pytest.raises(RuntimeError, match="no episode runs; call reset"):
        env.unwrapped.step(0)


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"actions": "all"}, "actions='all': must be one of train, multi, flat"),
        ({"reward_on": "train"}, "reward_on='train': must be 'test' or 'validation'"),
        ({"wait": 5}, "wait=5: the actions decide when to train"),
        ({"policy": "fixed"}, "policy='fixed': the actions decide .*; leave policy out"),
        ({"learner": "oracle"}, "learner='oracle': it trains at every tick"),
        ({"learner": "nobody"}, "agent 'nobody': unknown; the agents are sm"),
        ({"grow": True}, "grow=True: the learner cannot grow; leave grow out"),
        (
            {"actions": "flat", "replay": True},
            "replay=True, grow=False with actions='flat': .*leave replay and grow out",
        ),
        ({"flops_price": -1.0}, "flops_price=-1.0: a price must be a finite number from 0 on"),
        ({"reward": "two"}, "reward='two': must be 'scalar' or 'vector'"),
        ({"reward": "vector", "flops_price": 0.5}, "reward='vector' with flops_price=0.5.*leave the prices out"),
    ],
)
def test_a_wrong_keyword_is_refused_when_the_environment_is_made(keywords, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make(**keywords)


def test_an_unknown_keyword_is_a_type_error_as_libraries_expect():
    """TorchRL leaves out a keyword if the error says "unexpected keyword argument"."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'epoch': agent 'sm' has no such hyper-parameter"):
        make(epoch=3)


def test_prices_are_numbers():
    with pytest.raises(TypeError, match="parameter_price='much': must be a number, for example parameter_price=0.1"):
        make(parameter_price="much")


def test_wrong_steps_and_resets_are_refused():
    env = make().unwrapped
    with pytest.raises(RuntimeError, match="step\\(\\) at tick -1: no episode runs"):
        env.step(0)
    with pytest.raises(ValueError, match="options \\['seed'\\]: reset of this environment has none"):
        env.reset(options={"seed": 1})
    with pytest.raises(TypeError, match="options=5: must be a dict"):
        env.reset(options=5)
    with pytest.raises(TypeError, match="seed=0.5: must be an integer"):
        env.reset(seed=0.5)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action=2: not in Discrete\\(2\\); give an action of this space"):
        env.step(2)
    assert env.alma.tick == 0


def test_seeds_and_actions_of_numpy_are_those_of_python():
    one, other = make(), make()
    assert np.array_equal(one.reset(seed=np.int64(3))[0], other.reset(seed=3)[0])
    assert one.unwrapped.step(np.True_)[1] == other.step(1)[1]


def test_make_names_the_call_that_makes_a_decision_environment():
    with pytest.raises(ValueError, match="give an id such as .* gymnasium.make\\('alma_env:Digits-ALMA-Wait-v0'"):
        alma_env.make("Digits-ALMA-Wait-v0")


def test_infos_without_the_reward_vector_are_json_values():
    _, _, infos = play(make(), [1] * 6)
    for info in infos:
        plain = {key: value for key, value in info.items() if key != "vector_reward"}
        assert json.loads(json.dumps(plain)) == plain


def test_stable_baselines3_adds_nothing_to_the_reward_that_ends_an_episode_over_budget():
    keywords = {"width": 4, "epochs": 1, "ticks": 5, "flops_budget": 1}
    env = make_vec_env(partial(gym.make, gym.spec("Digits-ALMA-Wait-v0")), env_kwargs=keywords)
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, gamma=1.0, learning_rate=0.0, seed=0, device="cpu")
    with torch.no_grad():
        model.policy.value_net.bias.fill_(-100.0)
    model.learn(16)
    assert model.rollout_buffer.rewards.min() > -6
