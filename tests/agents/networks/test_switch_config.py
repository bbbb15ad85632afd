"""The configuration of a Switch Transformer: its initial weights and its rules."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_size import SwitchSize

from .small_switch import SMALL, VOCABULARY, build, new, text


@pytest.mark.parametrize("init", ["gpt", "switch"])
def test_weights_are_drawn_from_the_generator_only(init: Any) -> None:
    before = torch.get_rng_state()
    first, second, other = (new(3, init=init, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert torch.equal(tensor, other[name]) == (name.endswith("bias") or "norm" in name)


def test_initial_weights_have_the_standard_deviations_of_their_scheme() -> None:
    size = SwitchSize(layers=2, width=64, heads=2, context=64)
    gpt, switch = (new(4, size, vocabulary=200, init=i) for i in ("gpt", "switch"))
    into_residual = 0
    for name, parameter in gpt.named_parameters():
        if parameter.dim() == 1 or name.endswith("bias"):
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name)))
            continue
        halves = parameter.shape[-2:] in ((64, 256), (64, 64)) and "positions" not in name
        into_residual += halves
        assert parameter.std().item() == pytest.approx(0.01 if halves else 0.02, rel=0.15), name
    assert into_residual == 4  # the outputs of two attentions, of the feed-forward network and of the experts
    for name, parameter in switch.named_parameters():
        if parameter.dim() > 1 and not name.endswith("bias"):
            std = math.sqrt(0.1 / (256 if ".outer" in name else 64))
            assert parameter.abs().max() <= 2 * std
            assert parameter.std().item() == pytest.approx(0.88 * std, rel=0.15), name  # the distribution is truncated


def test_expert_dropout_is_dropout_by_default() -> None:
    def rates(**options: float) -> tuple[float, float]:
        model = build(**options)
        return model.blocks[1].dropout.p, model.mixtures[0].expert_dropout.p

    assert rates(dropout=0.2) == (0.2, 0.2)
    assert rates(dropout=0.2, expert_dropout=0.4) == (0.2, 0.4)
    inside = build(experts=1, expert_dropout=0.5)
    logits = inside(text())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert not torch.allclose(inside.train()(text()), logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 0}, "vocabulary=0.*at least 1"),
        ({"experts": 0}, "experts=0.*at least 1"),
        ({"capacity_factor": 0.0}, "capacity_factor=0.0.*above 0"),
        ({"capacity_factor": math.inf}, "capacity_factor=inf.*finite.*capacity_factor=2"),
        ({"jitter": -0.1}, "jitter=-0.1.*at least 0 and below 1.*jitter=0"),
        ({"dropout": 1.0}, "dropout=1.0.*below 1"),
        ({"expert_dropout": math.nan}, "expert_dropout=nan.*below 1"),
        ({"copy_noise": -0.1}, "copy_noise=-0.1.*at least 0"),
        ({"init": "xavier"}, "init='xavier'.*gpt, switch"),
    ],
)
def test_an_argument_out_of_range_raises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SwitchConfig(**{"vocabulary": VOCABULARY, "size": SMALL, "experts": 2, **options})
