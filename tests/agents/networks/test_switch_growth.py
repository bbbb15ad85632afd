"""The growth of a Switch Transformer: copied and untrained experts, and the shares that decide which are copied."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from agents.networks.switch_size import SwitchSize, parameter_count

from ..random_examples import seeded
from .small_switch import SMALL, VOCABULARY, build, grow, layer, new, routed_by, text


def test_growth_appends_copies_of_experts_and_router_rows() -> None:
    model = build(4)
    before = copy.deepcopy(model.state_dict())
    grown = grow(model, [[2, 0], [3, 1]])
    assert [switch.splits for switch in grown.mixtures] == [(2, 0), (3, 1)]
    assert (model.experts, grown.experts) == (4, 6)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        after = grown.state_dict()[name]
        if name.startswith(("blocks.1.feed_forward.", "blocks.3.feed_forward.")):
            order = [0, 1, 2, 3, 2, 0] if name.startswith("blocks.1") else [0, 1, 2, 3, 3, 1]
            assert torch.equal(after, tensor[order])
        else:
            assert torch.equal(after, tensor)
    assert sum(p.numel() for p in grown.parameters()) == parameter_count(VOCABULARY, SMALL, 6)
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in grown.parameters())


def test_copies_get_no_token_and_the_weight_of_the_expert_shrinks() -> None:
    model = build(4)
    grown = grow(model, [[0, 2]] * 2)
    x = torch.randn(2, 9, 16, dtype=torch.float64, generator=seeded(7))
    old, new = model.mixtures[0], grown.mixtures[0]
    before, after = old(x), new(x)
    assert torch.equal(before[1].experts, after[1].experts)
    p = old.probabilities(x.flatten(0, 1))
    shrink = (1 / (1 + p[:, 0] + p[:, 2])).view(2, 9, 1)
    torch.testing.assert_close(after[0], shrink * before[0])
    assert set(before[1].experts.unique().tolist()) == {0, 1, 2, 3}
    _, shares = grown.forward_with_shares(text())
    assert all(share.argmax(-1).max() < 4 for share in shares)


def test_growth_lowers_the_capacity_of_the_original_experts() -> None:
    x = routed_by([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9])
    switch = layer(2, capacity_factor=1.5, width=2).train()
    assert (switch(x)[0] != 0).all()
    for expert in (0, 1):
        switch.split(expert, seeded())
    assert (switch(x)[0] != 0).any(-1).tolist() == [[True, True, False, True]]


def test_noise_is_added_only_to_copied_rows_of_the_router() -> None:
    models = [new(3, SwitchSize(2, 256, 2), copy_noise=noise) for noise in (0.0, 0.01, 0.01)]
    plain, noisy, again = (grow(model, [[1, 1]], seed=4) for model in models)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(noisy.state_dict()[name], again.state_dict()[name])
        assert torch.equal(noisy.state_dict()[name], tensor) == (not name.endswith("router"))
    row = plain.mixtures[0].router[1]
    added = noisy.mixtures[0].router - plain.mixtures[0].router
    assert (added[:3] == 0).all()
    torch.testing.assert_close(added[3:].std(1), (0.01 * row.std()).expand(2), rtol=0.2, atol=0)


def test_a_grown_model_can_be_trained() -> None:
    grown = grow(build(2, copy_noise=0.01), [[0]] * 2).train()
    logits, balance, _ = grown.outputs(text())
    (F.cross_entropy(logits.flatten(0, 1), text(seed=6).flatten()) + balance).backward()
    assert all((switch.router.grad[-1] != 0).any() for switch in grown.mixtures)


def test_untrained_experts_have_the_initial_distribution_of_the_model() -> None:
    model = new(1, SwitchSize(2, 256, 2))
    switch = model.mixtures[0]
    first = {name: stack.clone() for name, stack in switch.named_parameters()}
    switch.regrow((0, 0), seeded(1))
    assert (switch.experts, switch.splits) == (3, (0, 0))
    for name, stack in switch.named_parameters():
        assert torch.equal(stack[:1], first[name])
        if "bias" in name:
            assert (stack == 0).all()
            continue
        assert not torch.equal(stack[1], stack[2])
        assert stack[1:].std().item() == pytest.approx(0.01 if name == "outer_weight" else 0.02, rel=0.15), name
    with pytest.raises(ValueError, match=r"splits=\(1,\).*\(0, 0\).*new layer"):
        switch.regrow((1,), seeded())


def test_the_shares_of_experts_are_the_routes_one_hot() -> None:
    model = build()
    logits, shares = model.forward_with_shares(text())
    outputs = model.outputs(text())
    assert torch.equal(logits, outputs.logits)
    for share, route in zip(shares, outputs.experts, strict=True):
        assert share.shape == (*route.shape, 4)
        assert (share.sum(-1) == 1).all()
        assert torch.equal(share.argmax(-1), route)


def test_routes_in_training_raise() -> None:
    with pytest.raises(RuntimeError, match=r"training=True.*call eval\(\)"):
        build().train().forward_with_shares(text())


@pytest.mark.parametrize("leaf", [-1, 4])
def test_splitting_an_expert_that_does_not_exist_raises(leaf: int) -> None:
    with pytest.raises(ValueError, match=f"leaf={leaf}.*0 to 3"):
        build().mixtures[0].split(leaf, seeded())
