"""The Switch layer: its routes, balance loss, capacity, jitter and gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from alma_env.metering import count

from ..random_examples import seeded
from .small_switch import build, layer, routed_by


def balance_of(x: Tensor) -> float:
    return layer(x.shape[-1], width=x.shape[-1])(x)[1].balance.item()


def test_a_token_goes_to_its_most_probable_expert_and_is_weighted_by_that_probability() -> None:
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=seeded(3))
    switch = layer(3)
    output, routes = switch(x)
    for sequence in range(2):
        for position in range(5):
            token = x[sequence, position]
            odds = [math.exp(value) for value in token[:3].tolist()]
            expert = odds.index(max(odds))
            hidden = F.gelu(switch.inner_weight[expert] @ token + switch.inner_bias[expert])
            answer = switch.outer_weight[expert] @ hidden + switch.outer_bias[expert]
            torch.testing.assert_close(output[sequence, position], odds[expert] / sum(odds) * answer)
            assert routes.experts[sequence, position] == expert
    assert len(routes.experts.unique()) == 3


def test_the_balance_loss_of_three_tokens_by_hand() -> None:
    # f = (2/3, 1/3), P = (0.6, 0.4): 2 (0.4 + 0.4/3) = 16/15.
    assert balance_of(routed_by([0.9, 0.1], [0.6, 0.4], [0.3, 0.7])) == pytest.approx(16 / 15)
    # f = (2/3, 1/3), P = (0.34, 0.66): below 1, since f and P can differ.
    assert balance_of(routed_by([0.51, 0.49], [0.51, 0.49], [1e-12, 1.0])) == pytest.approx(0.89333333)


def test_the_balance_loss_is_1_for_uniform_routes_and_at_most_the_number_of_experts() -> None:
    assert balance_of(torch.zeros(2, 7, 4, dtype=torch.float64)) == pytest.approx(1)  # ties: f = (1, 0, 0, 0)
    assert balance_of(routed_by(*[[1.0, 1e-12, 1e-12, 1e-12]] * 5)) == pytest.approx(4)
    for seed in range(20):
        x = 3 * torch.randn(1, 6, 4, dtype=torch.float64, generator=seeded(seed))
        fractions = torch.bincount(x.argmax(-1).flatten(), minlength=4) / 6
        assert fractions.square().sum().item() <= balance_of(x) <= 4


@pytest.mark.parametrize(
    ("experts", "factor", "tokens", "capacity"),
    [(4, 1.0, 8, 2), (4, 1.0, 9, 3), (3, 1.25, 6, 3), (10, 1.1, 100, 11), (4, 0.5, 4096, 512), (1, 0.5, 8, 8)],
)
def test_the_capacity_is_rounded_up(experts: int, factor: float, tokens: int, capacity: int) -> None:
    assert layer(experts, factor, width=12).capacity(tokens) == capacity


def test_the_later_tokens_of_an_overloaded_expert_are_dropped_only_in_training() -> None:
    first, second = [0.8, 0.2], [0.1, 0.9]
    x = routed_by(first, second, first, first, first, second).view(2, 3, 2)  # capacity 3 over both sequences
    switch = layer(2, width=2)
    everything = switch(x)[0].view(6, 2)
    trained = switch.train()(x)[0].view(6, 2)
    torch.testing.assert_close(trained[[0, 1, 2, 3, 5]], everything[[0, 1, 2, 3, 5]])
    assert (trained[4] == 0).all()
    assert (everything != 0).all()


def test_a_dropped_token_keeps_only_the_residual() -> None:
    model = build(capacity_factor=1e-9)  # one token per expert
    block = model.blocks[1]
    x = torch.randn(1, 9, 16, dtype=torch.float64, generator=seeded())
    attended = x + block.attention(block.attention_norm(x))
    unchanged = (block.train()(x)[0] == attended).all(-1).flatten()
    routes = block.eval()(x)[1].experts.flatten().tolist()
    assert unchanged.tolist() == [expert in routes[:position] for position, expert in enumerate(routes)]


def test_dropped_tokens_cost_nothing() -> None:
    x = routed_by([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4])
    switch = layer(2, width=2).float().train()
    assert count(switch, x.float()).total == 2 * 2 * (8 * 2**2) + 2 * 4 * 2 * 2  # two of four tokens


def test_permuting_tokens_permutes_the_outputs_if_none_is_dropped() -> None:
    x = torch.randn(1, 24, 4, dtype=torch.float64, generator=seeded(2))
    order = torch.randperm(24, generator=seeded(4))
    roomy, tight = layer(4, capacity_factor=4).train(), layer(4).train()
    torch.testing.assert_close(roomy(x[:, order])[0], roomy(x)[0][:, order])
    assert not torch.allclose(tight(x[:, order])[0], tight(x)[0][:, order])


def test_the_router_learns_from_the_weight_of_the_expert_and_from_the_balance_loss() -> None:
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=seeded(6))
    switch = layer(3).train()
    router = switch.router.detach().clone().requires_grad_()

    def outputs(router: Tensor) -> tuple[Tensor, Tensor]:
        output, routes = functional_call(switch, {"router": router}, (x,))
        return output, routes.balance

    assert torch.autograd.gradcheck(outputs, (router,))  # f is constant near this point
    for value in outputs(router):
        (gradient,) = torch.autograd.grad(value.sum(), router, retain_graph=True)
        assert (gradient != 0).all()


def test_the_router_learns_from_dropped_tokens_only_by_the_balance_loss() -> None:
    x = routed_by([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]).requires_grad_()
    output, routes = layer(2, width=2).train()(x)
    (of_output,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
    (of_balance,) = torch.autograd.grad(routes.balance, x)
    assert (of_output[0, :2] != 0).all()
    assert (of_output[0, 2:] == 0).all()
    assert (of_balance != 0).all()


def test_only_experts_with_tokens_learn() -> None:
    switch = layer(3, width=3).train()
    switch(routed_by([0.8, 0.1, 0.1], [0.1, 0.1, 0.8]))[0].sum().backward()
    for stack in (switch.inner_weight, switch.inner_bias, switch.outer_weight, switch.outer_bias):
        assert [bool(gradient.any()) for gradient in stack.grad] == [True, False, True]


def test_jitter_changes_the_router_only_in_training_and_at_most_by_its_size() -> None:
    x = torch.ones(1, 1000, 4, dtype=torch.float64)
    still, jittery = layer(4), layer(4, jitter=0.1)
    assert torch.equal(jittery(x)[0], still(x)[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        logits = jittery.train().probabilities(x[0]).log()
    spread = logits - logits.mean(1, keepdim=True)
    assert 0.15 < (spread.amax(1) - spread.amin(1)).max() <= 0.2
    assert len(jittery(x)[1].experts.unique()) == 4
