"""The environment refuses parameters that changed outside its meter."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from safetensors.torch import save
from torch import nn

from alma_env.errors import UnmeteredTrainingError


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) / 16)


def fit(module, observation):
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.1 * parameter.grad


def in_another_process(module, observation):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os.write(writing, save({name: t + 0.01 for name, t in module.state_dict().items()}))
        os._exit(0)
    os.waitpid(child, 0)
    from safetensors.torch import load

    module.load_state_dict(load(os.read(reading, 2**16)))
    os.close(reading)
    os.close(writing)


def when_it_is_deleted(module, observation):
    class Late:
        def __del__(self):
            thread = threading.Thread(target=fit, args=(module, observation))
            thread.start()
            thread.join()

    Late()


def with_the_meter_off(module, observation):
    pass  # the test trains after the block


@pytest.mark.parametrize("train", [in_another_process, when_it_is_deleted, with_the_meter_off])
def test_parameters_that_changed_outside_the_meter_are_refused(env, train):
    module = Small()
    observation, _ = env.reset(seed=0, options={"predictor": module})
    with env.meter:
        train(module, observation)
    if train is with_the_meter_off:
        fit(module, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(module)
