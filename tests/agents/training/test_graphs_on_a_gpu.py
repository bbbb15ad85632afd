"""On a GPU, the engine that replays epochs computes and charges what the plain engine does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from agents.learners.gmoe import GMoE
from agents.training.graphs import graphs_engine
from agents.training.stage import plain_engine
from agents.training.trainer import Trainer

from .graph_stages import BODIES, CIFAR, SETTINGS, growing, images, outcome

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("name", BODIES)
def test_graphs_train_as_the_plain_engine_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    settings = dataclasses.replace(SETTINGS if "mlp" in name else CIFAR, optimizer="adadelta", learning_rate=0.1)
    report, state, charge, _ = outcome(graphs_engine, BODIES[name](), settings, "cuda")
    expected, expected_state, expected_charge, _ = outcome(plain_engine, BODIES[name](), settings, "cuda")
    assert charge == expected_charge
    assert report.validation_loss == pytest.approx(expected.validation_loss, rel=1e-2)
    for name, tensor in expected_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.9},
        {"optimizer": "adam", "learning_rate": 1e-3},
        {"precision": "bf16"},
        {"keep_initial": True, "select": "val_error", "epochs": 9, "patience": 2},
    ],
    ids=str,
)
def test_graphs_train_with_every_setting_as_the_plain_engine_on_a_gpu(changes: dict[str, Any]) -> None:
    settings = dataclasses.replace(SETTINGS, **changes)
    ours, theirs = (outcome(engine, BODIES["mlp"](), settings, "cuda") for engine in (graphs_engine, plain_engine))
    assert ours[2:] == theirs[2:]
    assert ours[0].validation_loss == pytest.approx(theirs[0].validation_loss, rel=1e-2)


def test_stages_of_a_growing_network_are_replayed_on_a_gpu() -> None:
    """Each stage records anew: growth changed the network."""
    reports: list[Any] = []
    for engine in (plain_engine, graphs_engine):
        trainer = Trainer(dataclasses.replace(CIFAR, optimizer="adadelta"), device="cuda", engine=engine)
        learner = GMoE(growing, trainer)
        for stage in range(3):
            if stage:
                learner.grow(images(40, stage), images(9, 5))
            report = learner.train(images(40, stage), images(9, 5))
        reports.append(report)
    assert reports[0].validation_loss == pytest.approx(reports[1].validation_loss, rel=0.05)
