"""The counts of Switch Transformers: parameters and FLOPs against their closed forms, and the rules of a size."""

from __future__ import annotations

import pytest
import torch

from agents.networks.switch_size import SIZES, SwitchSize, forward_flops, paper_gflops, parameter_count
from alma_env.metering import count

from ..random_examples import seeded
from .small_switch import SMALL, VOCABULARY, build, layer, new, text

BPE = 50_257
MILLIONS = {  # of parameters, with 50 257 words and 512 positions
    "base": {4: 63.8, 6: 76.4, 8: 89.0, 12: 114.2},
    "large": {4: 209.1, 6: 265.7, 8: 322.4, 12: 435.8},
}


@pytest.mark.parametrize("name", MILLIONS)
@pytest.mark.parametrize("experts", [4, 6, 8, 12])
def test_the_paper_sizes_have_their_parameters(name: str, experts: int) -> None:
    with torch.device("meta"):
        model = new(experts, SIZES[name], vocabulary=BPE)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == parameter_count(BPE, SIZES[name], experts)
    assert round(parameters / 1e6, 1) == MILLIONS[name][experts]


def test_the_tiny_model_has_one_switch_layer_and_its_parameters() -> None:
    model = new(3, SIZES["tiny"], vocabulary=100)
    assert len(model.mixtures) == 1
    assert sum(p.numel() for p in model.parameters()) == parameter_count(100, SIZES["tiny"], 3)


@pytest.mark.parametrize("experts", [1, 3])
@pytest.mark.parametrize("length", [12, 7])
def test_the_forward_flops_equal_the_closed_form(experts: int, length: int) -> None:
    charge = count(build(experts).float(), text(3, length))
    assert charge.total == 3 * forward_flops(VOCABULARY, SMALL, experts, length)


def test_the_closed_forms_give_the_published_gflops_and_the_plain_count() -> None:
    published = [round(paper_gflops(SIZES[name], BPE), 1) for name in ("base", "large")]
    assert published == [42.3, 126.3]
    routers = [2 * 512 * 512 * 4 * 3, 2 * 512 * 768 * 4 * 6]
    plain = [forward_flops(BPE, SIZES[name], 4, 512) - r for name, r in zip(("base", "large"), routers, strict=True)]
    assert [round(flops / 1e9, 1) for flops in plain] == [48.9, 136.2]


def test_the_number_of_experts_does_not_change_the_flops_of_the_experts() -> None:
    x = torch.randn(2, 10, 4, generator=seeded())
    for experts in (1, 2, 4):
        assert count(layer(experts).float(), x).total == 2 * 20 * (8 * 4**2) + 2 * 20 * 4 * experts


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 16, 2), "layers=1.*at least 2"),
        ((2, 0, 2), "width=0.*at least 1"),
        ((2, 16, 3), "width=16, heads=3.*multiple"),
        ((2, 16, 2, 0), "context=0.*at least 1"),
    ],
)
def test_a_size_out_of_range_raises(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SwitchSize(*sizes)
