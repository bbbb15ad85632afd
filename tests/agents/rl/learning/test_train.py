"""A policy learned on a surrogate drives real runs."""

from __future__ import annotations

import dataclasses
import io
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation

import agents
import agents.runs.run_folder
import alma_env
from agents.policies.actions import Actions
from agents.policies.choices import decision_of
from agents.policies.learned import model_files
from agents.policies.learned.features import features_of
from agents.policies.learned.file_checks import digest_of
from agents.policies.specs import policy_from
from agents.rl import save_policy
from agents.rl.learning.train import train_policy

pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn"])
def test_a_learned_policy_drives_a_run_and_its_file_can_move(algorithm, file, tmp_path):
    model = train_policy(
        "Digits-ALMA-Wait-Surrogate-v0", algorithm=algorithm, steps=400, episodes_at_once=8, recorded=str(file), width=4
    )
    model.save(tmp_path / "policy.zip")
    policy = agents.LearnedPolicy(tmp_path / "policy.zip")
    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=policy)
    ledger = agents.run(env, agent, 0, tmp_path / "run")
    decided = [row.tick for row in ledger if "training" in row.flops]
    assert decided == [record.tick for record in agent.history]
    assert all(row.flops["policy"] > 0 for row in ledger.rows[1:])  # decisions are charged

    moved = tmp_path / "elsewhere.zip"
    (tmp_path / "policy.zip").rename(moved)
    again = agents.make("sm", env, width=4, epochs=1, policy=agents.LearnedPolicy(moved))
    assert agents.run(env, again, 0, tmp_path / "run").to_json() == ledger.to_json()


def test_a_short_training_of_dqn_has_updates(file):
    arguments = {"steps": 400, "episodes_at_once": 8, "recorded": str(file), "width": 4}
    assert train_policy("Digits-ALMA-Wait-Surrogate-v0", algorithm="dqn", **arguments)._n_updates > 0


def test_a_learned_policy_decides_as_its_model_does_in_the_decision_environment(file, tmp_path):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    model.save(tmp_path / "policy.zip")
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", width=4, epochs=1)
    observation, _ = env.reset(seed=0)
    ended, actions = False, []
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        actions.append(int(action))
        observation, _, ended, _, _ = env.step(action)
    alma = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", alma, width=4, epochs=1, policy=agents.LearnedPolicy(tmp_path / "policy.zip"))
    agents.run(alma, agent, 0)
    assert [record.tick for record in agent.history] == [n + 1 for n, action in enumerate(actions) if action]


def test_a_policy_does_not_learn_decisions_on_a_surrogate_without_them(file):
    with pytest.raises(ValueError, match="model 0: replays=.*, restarts=False: the recorded runs must contain replay"):
        train_policy("Digits-ALMA-Wait-Surrogate-v1", steps=64, recorded=str(file), width=4)


@pytest.mark.parametrize("price", [0, 30])
def test_a_policy_for_all_decisions_decides_as_its_model_does_at_its_price(price, tmp_path):
    name = "Digits-ALMA-Wait-Surrogate-v1"
    model = train_policy(name, steps=2_000, episodes_at_once=20, width=4, pass_price=(0, 30))
    file = save_policy(model, tmp_path / "policy.zip")
    env = gym.make("alma_env:Digits-ALMA-Wait-v1", width=4, epochs=1, pass_price=price)
    observation, _ = env.reset(seed=0)
    ended, decisions = False, {}
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        decisions[len(decisions) + 1] = decision_of(action, ticks=20, grows=False)
        observation, _, ended, _, _ = env.step(action)
    alma = alma_env.make("Digits-ALMA-v0")
    policy = agents.LearnedPolicy(file, pass_price=price)
    agent = agents.make("sm", alma, width=4, epochs=1, policy=policy)
    policy = policy_from(f"{file}:pass_price={price}")  # for the command line's default agent, sm, which cannot grow
    assert agent.config["policy"] == agents.policy_record(policy)
    agents.run(alma, agent, 0)
    made = {record.tick: (record.replay, record.window, record.restart) for record in agent.history}
    trainings = {tick: one for tick, one in decisions.items() if one.train}
    first = min(trainings)  # a restart has no effect at the first stage
    assert made == {tick: (one.replay, one.window, one.restart and tick != first) for tick, one in trainings.items()}
    assert agents.policy_record(policy)["pass_price"] == price


def test_prices_are_for_models_that_see_them(file, tmp_path):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    saved = save_policy(model, tmp_path / "policy.zip")
    with pytest.raises(ValueError, match=r"pass_price=4 with policy=.*does not see prices.*Digits-ALMA-Wait-v1"):
        agents.LearnedPolicy(saved, pass_price=4)
    with pytest.raises(ValueError, match="memory_price=-1: must be a price from 0 on"):
        agents.LearnedPolicy(saved, memory_price=-1)
    assert "pass_price" not in agents.policy_record(agents.LearnedPolicy(saved))


@pytest.mark.parametrize(
    ("replay", "record", "made"),
    [("none", False, (False, None)), ("all", True, (True, None)), ("last:2", "last:2", (True, 2))],
)
def test_a_learned_policy_takes_all_words_for_replay(file, tmp_path, replay, record, made):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    policy = agents.LearnedPolicy(save_policy(model, tmp_path / "policy.zip"), replay=replay)
    assert agents.policy_record(policy)["replay"] == record
    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=policy)
    agents.run(env, agent, 0)
    assert {(stage.replay, stage.window) for stage in agent.history} == {made}
    with pytest.raises(ValueError, match="replay='some'"):
        agents.LearnedPolicy(policy.path, replay="some")


SURROGATE = "alma_env:Digits-ALMA-Wait-Surrogate-v0"


@pytest.mark.parametrize("env_id", ["Digits-ALMA-Wait-Surrogate-v0", "Digits-ALMA-Wait-v0"])
def test_training_a_policy_does_not_advise_another_version(env_id, recwarn):
    settings = {"n_steps": 2, "batch_size": 2}
    train_policy(env_id, steps=2, episodes_at_once=2, width=4, settings=settings)
    assert not [warning for warning in recwarn if "out of date" in str(warning.message)]
    gym.make(SURROGATE, width=4)
    assert [warning for warning in recwarn if "out of date" in str(warning.message)]


def test_a_discount_is_that_of_the_algorithm_and_of_the_normalised_returns(file):
    for settings, discount in (({}, 1 - 3 / 20), ({"gamma": 0.5}, 0.5)):
        keywords = {"steps": 2, "episodes_at_once": 2, "recorded": str(file), "width": 4, "settings": settings}
        model = train_policy("Digits-ALMA-Wait-Surrogate-v0", **keywords)
        assert model.gamma == model.get_vec_normalize_env().gamma == pytest.approx(discount)


def test_a_policy_can_learn_on_a_stream_of_one_mega_batch():
    model = train_policy("Digits-ALMA-Wait-v0", steps=4, ticks=1, width=4, epochs=1)
    assert model.num_timesteps == 4


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        (partial(FrameStackObservation, stack_size=4), r"shape \(4, 13\), not .* stacks frames: a run gives"),
        (NormalizeObservation, "such as NormalizeObservation, changed the range.* train without it"),
    ],
)
def test_a_model_of_wrapped_observations_is_neither_saved_nor_played(wrapper, reason, tmp_path):
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", wrapper(gym.make(SURROGATE, width=4)), n_steps=8, batch_size=8)
    with pytest.raises(ValueError, match=reason):
        save_policy(model, tmp_path / "policy.zip")
    assert not list(tmp_path.iterdir())
    model.save(tmp_path / "saved.zip")
    with pytest.raises(ValueError, match=reason):
        agents.LearnedPolicy(tmp_path / "saved.zip")


@dataclasses.dataclass
class Watched:
    """A learned policy, and the observations and masks that its model had."""

    policy: agents.LearnedPolicy
    seen: list = dataclasses.field(default_factory=list)

    def __call__(self, now):
        mask = Actions("train").masks(tick=now.tick, pending=now.pending, stages=now.stages)
        self.seen.append((features_of(now), mask))
        return self.policy(now)


def decisions_of(policy):
    """Play a run on the digits with a learned policy; return its actions, and what its model saw."""
    alma, watched = alma_env.make("Digits-ALMA-v0"), Watched(policy)
    agent = agents.make("sm", alma, width=4, epochs=1, policy=watched)
    agents.run(alma, agent, 0)
    trained = {record.tick for record in agent.history}
    return [int(tick in trained) for tick in range(1, 21)], watched.seen


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_a_policy_of_normalised_observations_sees_them_normalised(algorithm, file, tmp_path):
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env(SURROGATE, n_envs=2, env_kwargs={"recorded": str(file), "width": 4}))
    settings = {"n_steps": 32, "batch_size": 32} if algorithm == "PPO" else {"learning_starts": 10}
    model = getattr(stable_baselines3, algorithm)("MlpPolicy", env, seed=1, **settings).learn(128)
    save_policy(model, tmp_path / "policy.zip")
    actions, seen = decisions_of(agents.LearnedPolicy(tmp_path / "policy.zip"))
    assert actions == [model.predict(env.normalize_obs(one), deterministic=True)[0] for one, _ in seen]
    normalisation = model_files.load(str(tmp_path / "policy.zip"), digest_of(tmp_path / "policy.zip")).normalisation
    observation = np.linspace(0, 1, 13, dtype=np.float32)
    assert np.array_equal(normalisation(observation), env.normalize_obs(observation))

    model.save(tmp_path / "without.zip")
    with pytest.raises(ValueError, match="VecNormalize normalised.*does not say how.*agents.rl.save_policy"):
        agents.LearnedPolicy(tmp_path / "without.zip")
    with pytest.raises(ValueError, match="path='policy': .*let the file name end in .zip"):
        save_policy(model, "policy")


def test_a_recurrent_policy_keeps_its_memory_from_tick_to_tick_and_across_a_checkpoint(tmp_path):
    contrib = pytest.importorskip("sb3_contrib", reason="the package sb3-contrib is not installed")
    model = contrib.RecurrentPPO("MlpLstmPolicy", gym.make(SURROGATE, width=4), n_steps=8, batch_size=8, seed=3)
    with torch.no_grad():  # decisions that depend on the memory
        for weight in model.policy.parameters():
            weight.mul_(20)
    save_policy(model, tmp_path / "policy.zip")
    policy = agents.LearnedPolicy(tmp_path / "policy.zip")
    decided, seen = decisions_of(policy)
    memory, expected = None, []
    for observation, _ in seen:
        action, memory = model.predict(observation, state=memory, deterministic=True)
        expected.append(int(action))
    assert decided == expected
    assert decided != [model.predict(observation, deterministic=True)[0] for observation, _ in seen]
    assert decisions_of(policy)[0] == decided  # a new run starts with a new memory

    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=policy)
    env.reset(seed=0, options={"predictor": agent.predictor})
    for _ in range(10):
        with env.meter:
            predictor = agent.observe(env.observation())
        env.step(predictor)
    saved = torch.load(io.BytesIO(_saved({"env": env.state_dict(), "agent": agent.state_dict()})))
    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=agents.LearnedPolicy(tmp_path / "policy.zip"))
    env.load_state_dict(saved["env"])
    agent.load_state_dict(saved["agent"], env.megabatch)
    while not env.done:
        with env.meter:
            predictor = agent.observe(env.observation())
        env.step(predictor)
    assert [record.tick for record in agent.history] == [n + 1 for n, action in enumerate(decided) if action]


def _saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


@pytest.mark.parametrize("algorithm", ["MaskablePPO", "QRDQN"])
def test_a_policy_of_sb3_contrib_decides_as_its_model_does(algorithm, tmp_path):
    contrib = pytest.importorskip("sb3_contrib", reason="the package sb3-contrib is not installed")
    model = getattr(contrib, algorithm)("MlpPolicy", gym.make(SURROGATE, width=4), seed=0)
    model.save(tmp_path / "policy.zip")

    def decide(seen, mask):
        masked = {"action_masks": mask} if algorithm == "MaskablePPO" else {}
        return model.predict(seen, deterministic=True, **masked)[0]

    actions, seen = decisions_of(agents.LearnedPolicy(tmp_path / "policy.zip"))
    assert actions == [decide(*one) for one in seen]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"env_id": "CartPole-v1"},
            "env_id='CartPole-v1': not a decision environment; the ids are .*Digits-ALMA-Wait-v0",
        ),
        ({"env_id": "Digits-ALMA-Wait-MO-v0"}, "rewards that are numbers; use the id without -MO"),
        ({"reward": "vector"}, "reward='vector': the algorithms learn from rewards that are numbers"),
        ({"algorithm": "sac"}, "algorithm='sac': must be one of ppo, a2c, dqn"),
        ({"steps": 0}, "steps=0: must be at least 1 decision"),
        ({"steps": "3"}, "steps='3': must be an integer, such as steps=1"),
        ({"seed": -1}, "seed=-1: must be from 0 to"),
        ({"seed": 0.5}, "seed=0.5: must be an integer"),
        ({"settings": {"gama": 0.5}}, "settings={'gama': …}: must be keywords .*did you mean gamma"),
        ({"settings": {"seed": 1}}, "settings={'seed': …}: must be .* that train_policy does not give itself"),
        ({"episodes_at_once": 0}, "episodes_at_once=0: must be at least 1 episode"),
        ({"episodes_at_once": "abc"}, "episodes_at_once='abc': must be a whole number.*episodes_at_once=512"),
        (
            {"env_id": "Digits-ALMA-Wait-v0", "algorithm": "dqn", "actions": "multi", "learner": "gens"},
            r"algorithm='dqn' with the action space MultiDiscrete.*use actions='flat', or algorithm='ppo'",
        ),
        ({"epochs": 3}, "unexpected keyword argument 'epochs': the environment has .*width"),
        ({"flop_price": 3}, "unexpected keyword argument 'flop_price': .*; did you mean flops_price"),
        ({"stream": "MNIST-ALMA-v0"}, "unexpected keyword argument 'stream'"),  # the id names it
        ({"env_id": "Digits-ALMA-Wait-v0", "stream": "MNIST-ALMA-v0"}, "unexpected keyword argument 'stream'"),
    ],
)
def test_wrong_arguments_of_training_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        train_policy(**({"env_id": "Digits-ALMA-Wait-Surrogate-v0"} | arguments))
