"""A predictor that cannot be scored is refused and does not change the episode."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from alma_env import Ensemble, PredictorError

from ..predictors import Returning
from .predictors import Constant


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


def test_a_module_that_cannot_be_copied_is_refused(env):
    env.reset(seed=0)
    with env.meter:
        model = Constant(1)
        torch.ones(2, 2) @ torch.ones(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(PredictorError, match="must support copy.deepcopy"):
        env.step(model)


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


def test_a_function_with_a_module_in_its_closure_is_refused(env):
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    env.reset(seed=0)
    with pytest.raises(PredictorError, match="register it as a submodule"):
        env.step(Returning(lambda x: network(x.float())))
