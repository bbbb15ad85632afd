"""Work outside of PyTorch is declared."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import UnmeteredTrainingError


def test_a_declared_charge_is_accepted_and_recorded(started):
    env, model, _ = started
    with torch.no_grad():
        model.body[0].weight.add_(0.1)
    env.meter.declare(1000, reason="evolution strategy in NumPy")
    env.step(model)
    assert env.ledger[1].declared == ("evolution strategy in NumPy",)
    assert env.ledger[1].comp == 1000
    assert env.ledger.score().declared


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
