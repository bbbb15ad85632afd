"""The environment: episodes, scoring, metered training, budgets, saved states, and Gymnasium."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import threading
from collections import OrderedDict

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import AlmaEnv, Ensemble, PredictorError, UnmeteredTrainingError
from alma_env.episode import Episode
from alma_env.metering import phase
from alma_env.scoring.evaluation import freeze

TICKS = 5
CALLS = {"count": 0}


class Counting(nn.Module):
    """A linear predictor that counts its runs in a global variable."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.temperature = temperature

    def forward(self, x):
        CALLS["count"] += 1
        return self.linear(x.flatten(1).float() / 16) / self.temperature


class Noisy(nn.Module):
    """A predictor with BatchNorm and dropout, which depend on the training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 10))

    def forward(self, x):
        return self.body(x.flatten(1).float() / 16)


class ReusesItsOutput(nn.Module):
    """A predictor that writes all answers to the same memory."""

    def __init__(self, inner, batch_size):
        super().__init__()
        self.inner = inner
        self.out = torch.zeros(batch_size, 10)

    def forward(self, x):
        out = self.out[: len(x)]
        out.copy_(self.inner(x))
        return out


class Constant(nn.Module):
    """A predictor that always answers the same class."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(nn.functional.one_hot(torch.tensor(label), 10).float())

    def forward(self, x):
        return self.logits.expand(len(x), 10)


class Returning(nn.Module):
    """A predictor that returns the value of a function."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.fixture
def env() -> AlmaEnv:
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def train(model: nn.Module, observation, steps: int = 3) -> None:
    """A few steps of training."""
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_an_episode_with_training_at_every_tick(env):
    model = Noisy()
    observation, info = env.reset(seed=0, options={"predictor": model})
    assert info["tick"] == 0
    rewards = []
    while True:
        with env.meter:
            train(model, observation)
        observation, reward, terminated, truncated, info = env.step(model)
        rewards.append(reward)
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        if terminated or truncated:
            break
    assert terminated
    assert not truncated
    score = env.ledger.score()
    assert [row.tick for row in env.ledger] == list(range(TICKS + 1))
    assert sum(rewards) == pytest.approx(-score.cer_from_1, abs=1e-12)
    assert score.final_error == -rewards[-1]
    assert score.mem == (TICKS + 1) * sum(p.numel() for p in model.parameters())
    assert env.ledger[1].buffers == 16 + 16 + 1
    assert all(row.comp > 0 for row in env.ledger.rows[1:])
    assert env.ledger[0].comp == 0


def test_the_error_is_that_on_the_hidden_test_set(env):
    _, info = env.reset(seed=0, options={"predictor": Constant(3)})
    assert info["error"] == np.mean(env.data.test_y != 3)


def test_without_a_predictor_tick_0_is_the_uniform_guess(env):
    _, info = env.reset(seed=0)
    assert info["error"] == 0.9
    assert env.ledger[0].parameters == 0
    _, reward, *_ = env.step(None)
    assert reward == -0.9


def test_the_observations_are_the_mega_batches_and_the_last_one_again(env):
    observation, _ = env.reset(seed=7)
    stream = alma_env.Stream(env.data, TICKS, seed=7)
    for tick in range(1, TICKS + 1):
        np.testing.assert_array_equal(observation["train"]["x"], stream.megabatch(tick)["train"]["x"])
        assert observation in env.observation_space
        observation, *_ = env.step(None)
    np.testing.assert_array_equal(observation["valid"]["y"], stream.megabatch(TICKS)["valid"]["y"])


def test_mega_batches_are_available_after_they_have_arrived(env):
    with pytest.raises(ValueError, match="no mega-batch has arrived yet"):
        env.megabatch(1)
    env.reset(seed=0)
    env.step(None)
    assert env.megabatch(2)["train"]["y"].tolist() == env.observation()["train"]["y"].tolist()
    with pytest.raises(ValueError, match="tick=3: mega-batches 1 to 2 have arrived"):
        env.megabatch(3)


def test_without_a_seed_the_environments_generator_draws_the_stream(env):
    env.reset(seed=3)
    drawn = [env.reset()[0]["train"]["y"].tolist() for _ in range(2)]
    env.reset(seed=3)
    assert [env.reset()[0]["train"]["y"].tolist() for _ in range(2)] == drawn
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("call", ["step", "step_after_end"])
def test_a_step_before_reset_or_after_the_end_is_refused(env, call):
    if call == "step_after_end":
        env.reset(seed=0)
        for _ in range(TICKS):
            env.step(None)
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        env.step(None)


def test_unknown_options_and_actions_are_refused(env):
    with pytest.raises(ValueError, match="the only option of reset is 'predictor'"):
        env.reset(options={"predictr": Constant(1)})
    env.reset(seed=0)
    with pytest.raises(TypeError, match="must be a torch.nn.Module, or None"):
        env.step(3)


# --- environment and learner do not disturb each other ------------------------------------------------------------


def test_scoring_does_not_change_the_learners_module(env):
    model = Noisy().train()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    env.step(model)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_predictors_are_scored_in_eval_mode(env):
    model = Noisy().train()
    env.reset(seed=0, options={"predictor": model})
    x = torch.tensor(env.data.test_x)
    wrong = (model.eval()(x).argmax(1) != torch.tensor(env.data.test_y)).float().mean()
    assert env.ledger[0].error == pytest.approx(wrong.item(), abs=1e-7)


def test_later_in_place_changes_do_not_affect_the_deployed_predictor(env):
    model = Constant(3)
    env.reset(seed=0, options={"predictor": model})
    with torch.no_grad():
        model.logits.zero_()
    _, reward, *_ = env.step(None)
    assert -reward == np.mean(env.data.test_y != 3)


def test_a_predictor_gets_a_copy_of_each_batch_and_of_nothing_else():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=50)
    batches = []

    def answer(x):
        batches.append(x)
        return torch.zeros(len(x), 10)

    env.reset(seed=0, options={"predictor": Returning(answer)})
    np.testing.assert_array_equal(torch.cat(batches).numpy(), env.data.test_x)
    test_memory = torch.tensor(env.data.test_x)
    for batch in batches:
        assert batch.untyped_storage().nbytes() == batch.numel()
        batch.zero_()
    np.testing.assert_array_equal(env.data.test_x, test_memory.numpy())


def test_the_environment_shares_nothing_with_the_predictor_also_no_empty_registry():
    model = Noisy()
    frozen = freeze(model)
    for module, copied in zip(model.modules(), frozen.modules(), strict=True):
        assert vars(module).keys() == vars(copied).keys()
        for name, value in vars(module).items():
            assert type(value) is type(vars(copied)[name]), name
            assert value is not vars(copied)[name] or isinstance(value, int | float | None), name


def test_a_registry_that_two_modules_share_is_shared_in_the_copy():
    model = nn.Sequential(nn.Identity(), nn.Identity())
    model[1]._forward_hooks = model[0]._forward_hooks
    frozen = freeze(model)
    assert frozen[1]._forward_hooks is frozen[0]._forward_hooks is not model[0]._forward_hooks


def test_writing_to_an_observation_does_not_change_the_stream(env):
    observation, _ = env.reset(seed=0)
    kept = copy.deepcopy(observation)
    observation["train"]["x"][:] = 0
    again, _ = env.reset(seed=0)
    np.testing.assert_array_equal(again["train"]["x"], kept["train"]["x"])


def test_a_predictor_with_random_numbers_repeats_its_answers(env):
    model = Returning(lambda x: torch.rand(len(x), 10))
    errors = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        env.reset(seed=0, options={"predictor": model})
        errors.append(env.ledger[0].error)
    assert errors[0] == errors[1]


def test_a_predictor_may_reuse_its_output():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=50)
    inner = env.action_space.sample()
    env.reset(seed=0, options={"predictor": inner})
    error = env.ledger[0].error
    env.reset(seed=0, options={"predictor": ReusesItsOutput(inner, 50)})
    assert env.ledger[0].error == error


# --- an unchanged predictor is not run again -------------------------------------------------------


def test_a_predictor_with_the_same_content_is_not_run_again(env):
    model = Counting()
    env.reset(seed=0, options={"predictor": model})
    CALLS["count"] = 0
    for same in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.train(), model.eval()):
        _, reward, *_ = env.step(same)
        assert -reward == env.ledger[0].error
    assert CALLS["count"] == 0


@pytest.mark.parametrize("change", ["attribute", "buffer", "hidden tensor", "forward", "submodule"])
def test_everything_that_the_forward_reads_is_content(env, change):
    model = Counting()
    model.register_buffer("shift", torch.zeros(1), persistent=False)
    model.plain = torch.zeros(1)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    CALLS["count"] = 0
    with env.meter:
        model(torch.from_numpy(observation["train"]["x"]))
    CALLS["count"] = 0
    if change == "attribute":
        model.temperature = 2.0
    elif change == "buffer":
        model.shift += 1
    elif change == "hidden tensor":
        model.plain += 1
    elif change == "forward":
        original = model.forward
        model.forward = lambda x: -original(x)
    else:
        model.linear = nn.Sequential(model.linear, nn.ReLU())
    env.step(model)
    assert CALLS["count"] > 0


class Routed(nn.Module):
    """A predictor that runs its layer twice for images whose first row is darker than a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("threshold", torch.tensor(-1.0))

    def forward(self, x):
        x = x.flatten(1).float()
        logits = self.layer(x)
        chosen = x[:, :8].sum(1) < self.threshold
        logits[chosen] = logits[chosen] + self.layer(x[chosen])
        return logits


def test_inference_flops_are_the_mean_over_the_test_inputs_also_if_they_depend_on_the_data(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, evaluation_batch_size=100)
    model = Routed()
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].inference_flops == 2 * 640
    first_rows = env.data.test_x.reshape(-1, 64)[:, :8].astype(np.float32).sum(1)
    for tick, threshold in enumerate((20.0, 25.0), start=1):
        with env.meter:
            model.threshold.fill_(threshold)
            model(torch.from_numpy(env.observation()["train"]["x"]))
        env.step(model)
        share = (first_rows < threshold).mean()
        assert 0 < share < 1
        assert env.ledger[tick].inference_flops == pytest.approx(2 * 640 * (1 + share))


# --- a predictor that cannot be scored does not change the episode --------------------------------


def _mutate(x):
    x.zero_()
    return torch.zeros(len(x), 10)


def _mutate_numpy(x):
    x.numpy()[:] = 0
    return torch.zeros(len(x), 10)


def _crash(x):
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: torch.full((len(x), 10), torch.nan), "NaN logits"),
        (lambda x: torch.zeros(len(x), 9), r"shape \(\d+, 9\).*\(batch, classes\) = \(\d+, 10\)"),
        (lambda x: torch.zeros(len(x)), "logits must have shape"),
        (lambda x: torch.zeros(len(x), 10, dtype=torch.int64), "dtype torch.int64.*floating point"),
        (lambda x: [0] * len(x), "returned list"),
        (lambda x: torch.zeros(len(x), 10).to_sparse(), "returned a sparse tensor"),
        (lambda x: torch.zeros(len(x), 10).to_sparse_csr(), "returned a sparse tensor"),
        (lambda x: torch.nested.nested_tensor([torch.zeros(10)] * len(x)), "returned a nested tensor"),
        (lambda x: torch.zeros(len(x), 10, device="meta"), "returned a meta tensor"),
        (lambda x: torch.zeros(len(x), 10).to(torch.float8_e4m3fn), r"float8_e4m3fn.*return logits.float\(\)"),
        (_crash, "raised KeyError"),
        (_mutate, "changed its input in place"),
        (_mutate_numpy, "changed its input in place"),
    ],
)
def test_a_predictor_that_cannot_be_scored_does_not_change_the_episode(env, make, message):
    good = Constant(3)
    observation, _ = env.reset(seed=0, options={"predictor": good})
    with env.meter:
        torch.ones(2, 3) @ torch.ones(3, 4)
    before = env.ledger.to_json()
    with pytest.raises(PredictorError, match=message):
        env.step(Returning(make))
    assert env.ledger.to_json() == before
    assert env.meter.total == 48
    np.testing.assert_array_equal(env.observation()["train"]["x"], observation["train"]["x"])
    _, reward, *_ = env.step(good)
    assert -reward == np.mean(env.data.test_y != 3)
    assert env.ledger[1].comp == 48


def test_an_unknown_partition_is_called_by_its_keyword():
    with pytest.raises(ValueError, match=r"partition='other': must be one of alma, continuum"):
        alma_env.make("Digits-ALMA-v0", partition="other")


@pytest.mark.parametrize("within", [lambda made: made, nn.Sequential, lambda made: Ensemble([made])])
@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.zeros(2, 1, 8, 8))])
def test_a_torchscript_module_is_refused_with_the_remedy(env, make, within):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    predictor = within(make(net))
    env.reset(seed=0)
    for deploy in (env.step, lambda one: env.reset(seed=1, options={"predictor": one}), env.validation_error):
        with pytest.raises(PredictorError, match=r"TorchScript module: .*deploy the torch\.nn\.Module"):
            deploy(predictor)
    assert (env.tick, env.stream_seed) == (0, 0)


def test_a_bad_predictor_at_reset_does_not_change_the_running_episode(env):
    env.reset(seed=0)
    env.step(None)
    with pytest.raises(PredictorError, match="NaN"):
        env.reset(seed=1, options={"predictor": Returning(lambda x: torch.full((len(x), 10), torch.nan))})
    assert env.tick == 1
    assert env.stream_seed == 0


def test_consider_changes_nothing_and_commit_accepts_answers_to_the_next_tick_only(env):
    env.action_space.seed(0)  # their errors differ
    first, second = (env.action_space.sample() for _ in range(2))
    env.reset(seed=0, options={"predictor": first})
    before = env.state_dict()
    pending = env.consider(second)
    pending_reset = env.consider_reset(1, second)
    assert env.state_dict() == before
    _, reward, *_ = env.commit(pending)
    assert env.ledger[1].error == -reward == pending.answer.error != env.ledger[0].error
    with pytest.raises(RuntimeError, match="answer to tick 1 at tick 2: call consider"):
        env.commit(pending)
    env.begin(pending_reset)
    assert (env.tick, env.stream_seed, env.ledger[0].error) == (0, 1, -reward)


def test_one_tick_can_have_a_budget(env):
    env.reset(seed=0)
    for charge, over_budget in ((10, False), (11, True)):
        env.meter.declare(charge, reason="work")
        pending = env.consider(None, tick_budget=10)
        assert pending.over_budget is over_budget
        _, _, _, truncated, _ = env.commit(pending)
        assert truncated is over_budget
    assert [row.refused for row in env.ledger] == [False, False] + [True] * (TICKS - 1)


def test_a_module_that_cannot_be_copied_is_refused(env):
    env.reset(seed=0)
    with env.meter:
        model = Constant(1)
        torch.ones(2, 2) @ torch.ones(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(PredictorError, match="must support copy.deepcopy"):
        env.step(model)


# --- parameters change only while the meter is running --------------------------------------------------------


@pytest.fixture
def started(env):
    model = Noisy()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    return env, model, observation


def test_training_under_the_meter_is_accepted(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
    env.step(model)
    assert env.ledger[1].comp > 0


def test_training_without_the_meter_is_refused(started):
    env, model, observation = started
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)
    assert env.tick == 0


def test_training_after_an_unrelated_metered_operation_is_refused(started):
    env, model, observation = started
    with env.meter:
        torch.ones(2, 2) @ torch.ones(2, 2)
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)


def test_training_on_after_the_metered_block_is_refused(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)


def test_training_in_another_thread_is_refused(started):
    env, model, observation = started
    with env.meter:
        worker = threading.Thread(target=train, args=(model, observation))
        worker.start()
        worker.join()
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_in_another_thread_is_refused_also_if_the_network_runs_under_the_meter(env):
    observation, _ = env.reset(seed=0)
    model = Noisy()
    with env.meter:
        worker = threading.Thread(target=train, args=(model, observation))
        worker.start()
        worker.join()
        model.eval()(torch.from_numpy(observation["train"]["x"]))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


class Registry(dict):
    """A dictionary that can have attributes."""


@pytest.mark.parametrize("registry", [Registry, OrderedDict])
def test_training_weights_that_are_attributes_of_an_empty_registry_is_refused(env, registry):
    model = Returning(lambda x: torch.zeros(len(x), 10))
    model.registry = registry()
    model.registry.bias = torch.zeros(10)
    env.reset(seed=0, options={"predictor": model})
    model.registry.bias = torch.arange(10.0)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_in_numpy_is_refused(started):
    env, model, _ = started
    with env.meter:
        for parameter in model.parameters():
            parameter.detach().numpy()[...] += 0.1
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_with_dispatch_modes_disabled_is_refused(started):
    from torch.utils._python_dispatch import _disable_current_modes

    env, model, observation = started
    with env.meter, _disable_current_modes():
        train(model, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_a_declared_charge_is_accepted_and_recorded(started):
    env, model, _ = started
    with torch.no_grad():
        model.body[0].weight.add_(0.1)
    env.meter.declare(1000, reason="evolution strategy in NumPy")
    env.step(model)
    assert env.ledger[1].declared == ("evolution strategy in NumPy",)
    assert env.ledger[1].comp == 1000
    assert env.ledger.score().declared


def test_an_untrained_module_is_refused_for_a_true_reason_with_reset_as_the_remedy(env):
    env.reset(seed=0)
    remedy = r"reset\(options=\{'predictor': module\}\), and None to step\(\) until it is trained"
    with pytest.raises(UnmeteredTrainingError, match=f"or the predictor is new and untrained: .*{remedy}"):
        env.step(Noisy())
    with env.meter:
        made_in_a_block = Noisy()
    with pytest.raises(UnmeteredTrainingError, match=f"counted 0 FLOPs, as for an untrained predictor: .*{remedy}"):
        env.step(made_in_a_block)


def test_samples_of_the_action_space_are_accepted_until_they_change(env):
    env.reset(seed=0)
    sample = env.action_space.sample()
    env.step(sample)
    with torch.no_grad():
        sample.weight.add_(1)
    with pytest.raises(UnmeteredTrainingError):
        env.step(sample)


def test_a_second_model_trained_at_the_same_tick_can_be_deployed_later(started):
    env, model, observation = started
    second = Noisy()
    with env.meter:
        train(model, observation)
        train(second, observation)
    env.step(model)
    env.step(second)
    assert env.ledger[2].comp == 0


def test_copying_the_best_weights_back_under_the_meter_is_accepted(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
        best = copy.deepcopy(model.state_dict())
        train(model, observation)
    with env.meter:
        model.load_state_dict(best)
    env.step(model)
    assert env.tick == 1


def test_metered_weights_that_were_restored_outside_of_the_block_are_accepted(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
        best = copy.deepcopy(model.state_dict())
        train(model, observation)
    model.load_state_dict(best)  # a copy only
    with env.meter, torch.no_grad(), phase("validation"):
        model(torch.from_numpy(observation["valid"]["x"]))
    env.step(model)
    assert env.tick == 1


def test_numpy_numbers_are_saved_as_python_numbers():
    env = alma_env.make("Digits-ALMA-v0", ticks=np.int64(3), flops_budget=np.float32(1e9), parameter_budget=np.int32(9))
    env.reset(seed=0)
    assert json.loads(json.dumps(env.state_dict()))["protocol"]["ticks"] == 3
    assert type(env.ticks) is int


def test_the_validation_error_is_available_in_inference_mode(env):
    env.reset(seed=0)
    model = env.action_space.sample()
    error = env.validation_error(model)
    with torch.inference_mode():
        assert env.validation_error(model) == error


# --- budgets ---------------------------------------------------------------------------------------


def test_breaking_the_flops_budget_keeps_the_deployed_predictor_and_ends_the_episode(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, flops_budget=100)
    env.reset(seed=0, options={"predictor": Constant(3)})
    env.step(None)
    with env.meter:
        model = Constant(4)
        torch.ones(4, 4) @ torch.ones(4, 4)
        model.logits.data.mul_(1.0)
    _, reward, terminated, truncated, info = env.step(model)
    error = float(np.mean(env.data.test_y != 3))
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(-error * (TICKS - 1))
    assert info["tick"] == TICKS
    assert [row.error for row in env.ledger] == [error] * (TICKS + 1)
    assert [row.refused for row in env.ledger] == [False, False] + [True] * (TICKS - 1)
    assert env.ledger.comp == 128


def test_breaking_the_parameter_budget_ends_the_episode_in_the_same_way(env):
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, parameter_budget=10)
    env.reset(seed=0, options={"predictor": Constant(3)})
    sample = env.action_space.sample()
    _, _, terminated, truncated, _ = env.step(sample)
    assert (terminated, truncated) == (False, True)
    assert {row.parameters for row in env.ledger} == {10}
    with pytest.raises(ValueError, match="predictor with 640 parameters: .*parameter_budget=10"):
        env.reset(seed=0, options={"predictor": sample})


@pytest.mark.parametrize("name", ["flops_budget", "parameter_budget"])
def test_a_budget_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name}=0: a budget must be positive"):
        alma_env.make("Digits-ALMA-v0", **{name: 0})


# --- saving and continuing ---------------------------------------------------------------------------


def play(env, model, observation, until):
    while env.tick < until:
        with env.meter:
            torch.manual_seed(env.tick)
            train(model, observation)
        observation, *_ = env.step(model)
    return observation


@pytest.mark.parametrize("stop", range(TICKS + 1))
def test_an_episode_saved_at_any_tick_continues_to_the_same_ledger(stop):
    torch.manual_seed(0)
    start = Noisy()
    whole = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    model = copy.deepcopy(start)
    observation, _ = whole.reset(seed=0, options={"predictor": model})
    play(whole, model, observation, TICKS)

    first = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    model = copy.deepcopy(start)
    observation, _ = first.reset(seed=0, options={"predictor": model})
    play(first, model, observation, stop)
    state = pickle.loads(pickle.dumps(first.state_dict()))

    second = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    second.load_state_dict(state)
    assert second.tick == stop
    if stop < TICKS:
        CALLS["count"] = 0
        play(second, model, second.observation(), TICKS)

    def rows(env):
        return [(r.error, r.flops, r.paper_flops, r.parameters, r.digest) for r in env.ledger]

    assert rows(second) == rows(whole)


def test_a_saved_state_has_the_keys_that_earlier_versions_read(env):
    env.reset(seed=0)
    assert sorted(env.state_dict()) == [
        "declared_at_deployment",
        "deployed",
        "generator",
        "known",
        "ledger",
        "meter",
        "protocol",
        "steady_flops",
        "stream_seed",
        "total_at_deployment",
    ]


def test_an_episode_is_read_from_the_json_that_it_wrote(env):
    env.reset(seed=0, options={"predictor": env.action_space.sample()})
    episode = env._episode
    assert Episode.from_dict(json.loads(json.dumps(episode.to_dict()))) == episode
    with pytest.raises(dataclasses.FrozenInstanceError):
        episode.stream_seed = 1


def test_a_state_of_another_protocol_is_refused(env):
    env.reset(seed=0)
    other = alma_env.make("Digits-ALMA-v0", ticks=TICKS + 1)
    with pytest.raises(ValueError, match="ticks=5 in the saved state, 6 here"):
        other.load_state_dict(env.state_dict())


def test_a_state_is_not_saved_in_the_middle_of_a_tick(env):
    env.reset(seed=0)
    with env.meter:
        torch.ones(2, 2) @ torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="16 FLOPs charged since tick 0"):
        env.state_dict()


# --- Gymnasium -------------------------------------------------------------------------------------


def test_gymnasiums_checker_passes_through_the_registered_id():
    from gymnasium.utils.env_checker import check_env

    env = gym.make("alma_env:Digits-ALMA-v0", ticks=TICKS)
    check_env(env.unwrapped, skip_render_check=False)


def test_gymnasiums_standard_wrappers_apply():
    env = gym.make("Digits-ALMA-v0", ticks=TICKS)
    env = gym.wrappers.TransformReward(env, lambda reward: 100 * reward)
    env = gym.wrappers.TimeLimit(env, max_episode_steps=3)
    env = gym.wrappers.RecordEpisodeStatistics(env)
    env = gym.wrappers.TimeAwareObservation(gym.wrappers.FilterObservation(env, ["train"]))
    env = gym.wrappers.Autoreset(env)
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, info = env.step(None)
    assert truncated
    assert info["episode"]["l"] == 3
    env.step(None)
    assert env.unwrapped.tick == 0


def test_specs_round_trip_through_json():
    spec = gym.make("Digits-ALMA-v0", ticks=7).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert again.unwrapped.ticks == 7


@pytest.mark.parametrize("vectorize", ["sync", "async", "async-shared"])
def test_vector_environments_run(vectorize):
    def build():
        return gym.make("alma_env:Digits-ALMA-v0", ticks=TICKS)

    same_step = gym.vector.AutoresetMode.SAME_STEP
    if vectorize == "sync":
        envs = gym.vector.SyncVectorEnv([build, build], autoreset_mode=same_step)
    else:
        shared = vectorize == "async-shared"
        envs = gym.vector.AsyncVectorEnv([build, build], shared_memory=shared, autoreset_mode=same_step)
    try:
        observations, _ = envs.reset(seed=[1, 2])
        single = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
        expected, _ = single.reset(seed=2)
        np.testing.assert_array_equal(observations["train"]["x"][1], expected["train"]["x"])
        for tick in range(1, TICKS + 1):
            actions = tuple(envs.single_action_space.sample() for _ in range(2))
            _, rewards, terminated, truncated, _ = envs.step(actions)
            _, reward, *_ = single.step(actions[1])
            assert rewards[1] == reward
            assert terminated.tolist() == [tick == TICKS] * 2
            assert not truncated.any()
    finally:
        envs.close()


def test_environment_action_and_observation_can_be_pickled_and_copied(env):
    observation, _ = env.reset(seed=0)
    env.step(None)
    action = env.action_space.sample()
    for clone in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert clone.tick == 1
        twin = pickle.loads(pickle.dumps(action))
        assert clone.step(twin)[1] == copy.deepcopy(env).step(copy.deepcopy(action))[1]
        assert clone.action_space == env.action_space
        assert clone.observation_space == env.observation_space
    again = pickle.loads(pickle.dumps(copy.deepcopy(observation)))
    np.testing.assert_array_equal(again["train"]["x"], observation["train"]["x"])


def test_an_id_or_a_folder_that_is_no_text_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="id=3: must be the id of a stream, one of MNIST-ALMA-v0"):
        alma_env.make(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="root=3: must be the path of a folder; use for example root='data'$"):
        alma_env.make("Digits-ALMA-v0", root=3)


def test_unknown_ids_and_keywords_are_refused():
    with pytest.raises(ValueError, match="id='CIFAR-ALMA-v0': unknown environment; the ids are MNIST-ALMA-v0"):
        alma_env.make("CIFAR-ALMA-v0")
    with pytest.raises(TypeError, match="colour"):
        alma_env.make("Digits-ALMA-v0", colour="red")


def test_a_stream_from_custom_arrays():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    env = alma_env.make("Arrays-ALMA-v0", train=(x[:100], y[:100]), test=(x[100:], y[100:]), ticks=5)
    observation, info = env.reset(seed=0)
    assert observation["train"]["x"].shape == (18, 3)
    assert observation in env.observation_space
    assert info["error"] == 0.5
    with pytest.raises(ValueError, match="without data"):
        alma_env.make("Arrays-ALMA-v0")


class Branching(nn.Module):
    """A predictor whose number of layer runs, and so its cost, depends on the mean pixel."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x):
        x = x.flatten(1).float()
        for _ in range(1 + int((x.mean() * self.scale).item())):
            out = self.linear(x)
        return out


def test_a_predictor_whose_cost_depends_on_the_data_is_counted_on_all_batches(env):
    unequal, steady = Branching(7.0), Branching(0.0)  # with equal structure and different buffers
    env.evaluation_batch_size = 40
    env.reset(seed=0, options={"predictor": unequal})
    expected = env.ledger[0].inference_flops
    means = [env.data.test_x[start : start + 40].mean() for start in range(0, len(env.data.test_y), 40)]
    sizes = [len(env.data.test_y[start : start + 40]) for start in range(0, len(env.data.test_y), 40)]
    times = [1 + int(np.float32(mean) * np.float32(7)) for mean in means]
    assert len(set(times)) > 1
    assert expected == pytest.approx(2 * 640 * np.average(times, weights=sizes))
    env.reset(seed=0, options={"predictor": steady})
    with env.meter:
        unequal.linear(torch.zeros(1, 64))
        for parameter in unequal.parameters():
            parameter.data.mul_(1.0)
    env.step(unequal)
    assert env.ledger[1].inference_flops == expected


def test_steady_inference_costs_are_saved_and_deleted_at_reset(env):
    env.reset(seed=0, options={"predictor": env.action_space.sample()})
    state = env.state_dict()
    assert len(state["steady_flops"]) == 1
    other = copy.deepcopy(env)
    other.load_state_dict(state)
    assert other.state_dict() == state
    env.reset(seed=0)
    assert env.state_dict()["steady_flops"] == []


class LeastSquares(nn.Module):
    """A predictor whose weights are a NumPy array."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = np.zeros((64, 10))

    def forward(self, x):
        return torch.from_numpy(x.flatten(1).double().numpy() @ self.weights)


def test_work_in_numpy_must_be_declared(env):
    model = LeastSquares()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    env.step(model)  # nothing has changed
    with env.meter:
        x, y = observation["train"]["x"].reshape(-1, 64).astype(float), np.eye(10)[observation["train"]["y"]]
        model.weights = np.linalg.lstsq(x, y, rcond=None)[0]
    with pytest.raises(UnmeteredTrainingError, match=r"NumPy.*declare"):
        env.step(model)
    env.meter.declare(0, reason="nothing was done")
    with pytest.raises(UnmeteredTrainingError, match=r"NumPy.*declare"):
        env.step(model)
    env.meter.declare(64**2 * len(x), reason="least squares")
    env.step(model)
    assert env.ledger[2].error < env.ledger[1].error


def test_declared_work_can_be_deployed_later(env):
    model = LeastSquares()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    model.weights = np.linalg.lstsq(
        observation["train"]["x"].reshape(-1, 64).astype(float), np.eye(10)[observation["train"]["y"]], rcond=None
    )[0]
    env.meter.declare(64**2 * 100, reason="least squares")
    env.step(None)
    resumed = alma_env.make("Digits-ALMA-v0", ticks=env.ticks)
    resumed.load_state_dict(json.loads(json.dumps(env.state_dict())))
    for one in (env, resumed):
        one.step(model)
        assert one.ledger[2].error < one.ledger[1].error
        assert one.ledger[2].comp == 0
        model.weights = model.weights + 1  # the declaration was for the previous change
        with pytest.raises(UnmeteredTrainingError, match=r"NumPy.*declare"):
            one.step(model)
        model.weights = model.weights - 1


def test_an_earlier_predictor_of_the_episode_can_be_deployed_again(env):
    best = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": best})
    other = copy.deepcopy(best)
    with env.meter:
        train(other, observation)
    env.step(other)
    state = env.state_dict()
    env.step(copy.deepcopy(best))
    assert env.ledger[2].error == env.ledger[0].error
    resumed = alma_env.make("Digits-ALMA-v0", ticks=env.ticks)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    resumed.step(copy.deepcopy(best))
    assert resumed.ledger[2] == dataclasses.replace(env.ledger[2], seconds=resumed.ledger[2].seconds)


def test_a_metered_block_around_the_loop_is_checked_at_every_tick(env):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
        env.step(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        with pytest.raises(UnmeteredTrainingError, match="counted 0 FLOPs"):
            env.step(model)


@pytest.mark.parametrize("copying", ["load_state_dict", "deepcopy", "foreach", "clone"])
@pytest.mark.parametrize("frozen", [False, True])
def test_copying_weights_that_were_trained_elsewhere_does_not_make_them_metered(env, copying, frozen):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    worker = copy.deepcopy(model)
    thread = threading.Thread(target=train, args=(worker, observation, 20))
    thread.start()
    thread.join()
    deployed = model
    with env.meter:
        if copying == "load_state_dict":
            deployed.load_state_dict(worker.state_dict())
        elif copying == "deepcopy":
            deployed = copy.deepcopy(worker)
        elif copying == "foreach":
            with torch.no_grad():
                torch._foreach_copy_(list(deployed.parameters()), list(worker.parameters()))
        else:
            for name, parameter in worker.named_parameters():
                setattr(deployed, name, nn.Parameter(parameter.detach().clone()))
        deployed.requires_grad_(not frozen)
        deployed(torch.from_numpy(observation["valid"]["x"]))  # some counted work
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(deployed)


def test_copies_of_metered_weights_are_accepted(env):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
        best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        train(model, observation)
        model.load_state_dict(best)
    env.step(model)
    with env.meter:
        train(model, observation)
        best = copy.deepcopy(model.state_dict())
    env.step(None)
    with env.meter:  # kept over a tick, and copied into another network that was made outside
        other = env.action_space.sample()
        other.load_state_dict(best)
        train(model, observation)
    env.step(other)
    assert [row.refused for row in env.ledger] == [False] * 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), "cannot be read .*initialised"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10, device="meta")), "cannot be read .*meta"),
    ],
)
def test_tensors_without_content_are_refused(env, make, message):
    env.reset(seed=0)
    with pytest.raises(PredictorError, match=message):
        env.step(make())
    assert env.tick == 0


def test_reset_works_in_inference_mode(env):
    model = env.action_space.sample()
    env.reset(seed=0, options={"predictor": model})
    error = env.ledger[0].error
    with torch.inference_mode():
        env.reset(seed=0, options={"predictor": copy.deepcopy(model)})
    assert env.ledger[0].error == error


@pytest.mark.parametrize(
    "keywords",
    [
        {"ticks": 2.5},
        {"valid_fraction": "abc"},
        {"flops_budget": "1e9"},
        {"evaluation_batch_size": 2.5},
        {"parameter_budget": True},
        {"data": "MNIST"},
    ],
)
def test_keywords_of_the_wrong_type_are_refused(keywords):
    name, value = next(iter(keywords.items()))
    with pytest.raises(TypeError, match=f"{name}={value!r}: "):
        alma_env.make("Digits-ALMA-v0", **keywords)


def test_a_refused_seed_does_not_change_the_episode():
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS, partition="continuum")
    env.reset(seed=1)
    state = env.state_dict()
    with pytest.raises(ValueError, match=str(2**33)):
        env.reset(seed=2**33)
    assert env.state_dict() == state


def test_another_normalisation_is_another_protocol():
    x, y = np.zeros((100, 3, 4, 4), np.float32), np.arange(100) % 2
    first, second = (alma_env.AlmaEnv(alma_env.from_arrays((x, y), (x, y), mean=mean), 5) for mean in (0.0, 0.5))
    first.reset(seed=0)
    with pytest.raises(ValueError, match="mean="):
        second.load_state_dict(first.state_dict())


@pytest.mark.parametrize("way", ["state", "copy"])
def test_a_predictor_trained_before_saving_can_be_deployed_after_loading(env, way):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
    env.step(None)
    if way == "copy":
        other = copy.deepcopy(env)
    else:
        other = alma_env.make("Digits-ALMA-v0", ticks=env.ticks)
        other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    restored = copy.deepcopy(model)
    for one, predictor in ((env, model), (other, restored)):
        one.step(predictor)
    assert other.ledger[2].error == env.ledger[2].error
    with torch.no_grad():
        restored.weight.add_(1.0)
    with pytest.raises(UnmeteredTrainingError):
        other.step(restored)


def scaled_class(factor):
    class Scaled(nn.Module):
        scale = factor

        def forward(self, x):
            return x.flatten(1)[:, :10].float() * self.scale

    return Scaled


def test_a_changed_class_makes_another_predictor(env):
    kind, other = scaled_class(1.0), scaled_class(-1.0)
    env.reset(seed=0, options={"predictor": kind()})
    env.meter.declare(1, reason="a change of a class cannot be metered")
    env.step(other())  # its class has the same name
    assert env.ledger[1].error != env.ledger[0].error
    other.scale = 1.0
    env.meter.declare(1, reason="a change of a class cannot be metered")
    env.step(other())
    assert env.ledger[2].error == env.ledger[0].error


def test_a_function_with_a_module_in_its_closure_is_refused(env):
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    env.reset(seed=0)
    with pytest.raises(PredictorError, match="register it as a submodule"):
        env.step(Returning(lambda x: network(x.float())))
