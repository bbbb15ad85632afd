"""The Switch Transformer: its counts, its routes, its equality with GPT-2 for one expert, and its growth."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from agents.networks.mlp_vgg import Predictor
from agents.networks.switch import SwitchTransformer
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_layer import SwitchLayer
from agents.networks.switch_size import SIZES, SwitchSize, forward_flops, paper_gflops, parameter_count
from agents.training import stage, step
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, train_stage
from alma_env.metering import Charge, Meter, count, count_once

VOCABULARY, BPE = 13, 50_257
SMALL = SwitchSize(layers=4, width=16, heads=2, context=12)
MILLIONS = {  # of parameters, with 50 257 words and 512 positions
    "base": {4: 63.8, 6: 76.4, 8: 89.0, 12: 114.2},
    "large": {4: 209.1, 6: 265.7, 8: 322.4, 12: 435.8},
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def new(
    experts: int = 4, size: SwitchSize = SMALL, *, vocabulary: int = VOCABULARY, seed: int = 0, **options: Any
) -> SwitchTransformer:
    return SwitchTransformer(SwitchConfig(vocabulary, size, experts, **options), generator=seeded(seed))


def build(experts: int = 4, seed: int = 0, **options: Any) -> SwitchTransformer:
    """Return a model in float64 and eval mode, with large weights, so that routes and logits differ clearly."""
    model = new(experts, seed=seed, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=seeded(seed + 1)))
    return model


def text(n: int = 3, length: int = 12, seed: int = 5) -> Tensor:
    return torch.randint(0, VOCABULARY, (n, length), generator=seeded(seed))


def layer(experts: int, capacity_factor: float = 1.0, width: int = 4, **options: float) -> SwitchLayer:
    """Return a layer in float64 and eval mode. Its router is a unit matrix: p = softmax(x) if E = d."""
    size = SwitchSize(layers=2, width=width, heads=1)
    model = new(experts, size, vocabulary=2, capacity_factor=capacity_factor, init="switch", **options)
    (switch,) = model.double().eval().mixtures
    with torch.no_grad():
        switch.router.copy_(torch.eye(experts, width))
        for name, parameter in switch.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=seeded(1)))
    return switch


def routed_by(*probabilities: list[float]) -> Tensor:
    """Return one sequence (1, T, E) of tokens with these probabilities in `layer`."""
    return torch.tensor([probabilities], dtype=torch.float64).log()


def balance_of(x: Tensor) -> float:
    return layer(x.shape[-1], width=x.shape[-1])(x)[1].balance.item()


# --- counts ---


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
    charge = count(build(experts), text(3, length))
    assert charge.total == 3 * forward_flops(VOCABULARY, SMALL, experts, length)


def test_the_closed_forms_give_the_published_gflops_and_the_plain_count() -> None:
    published = [round(paper_gflops(SIZES[name], BPE), 1) for name in ("base", "large")]
    assert published == [42.3, 126.3]
    routers = [2 * 512 * 512 * 4 * 3, 2 * 512 * 768 * 4 * 6]
    plain = [forward_flops(BPE, SIZES[name], 4, 512) - r for name, r in zip(("base", "large"), routers, strict=True)]
    assert [round(flops / 1e9, 1) for flops in plain] == [48.9, 136.2]


def test_the_number_of_experts_does_not_change_the_flops_of_the_experts() -> None:
    x = torch.randn(2, 10, 4, dtype=torch.float64, generator=seeded())
    for experts in (1, 2, 4):
        assert count(layer(experts), x).total == 2 * 20 * (8 * 4**2) + 2 * 20 * 4 * experts


def test_dropped_tokens_cost_nothing() -> None:
    x = routed_by([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4])
    switch = layer(2, width=2).train()
    assert count(switch, x).total == 2 * 2 * (8 * 2**2) + 2 * 4 * 2 * 2  # two of four tokens


# --- routes ---


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


def test_the_balance_of_the_model_is_the_sum_over_its_switch_layers() -> None:
    model = build()
    with torch.no_grad():
        for switch in model.mixtures:
            switch.router.zero_()
    assert model.outputs(text()).balance.item() == pytest.approx(2)


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


def test_dropout_is_applied_to_the_embeddings_and_to_both_residual_branches() -> None:
    model = build(experts=1).train()
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=seeded())
    for block in model.blocks:
        block.dropout.p = 1.0
        assert torch.equal(block(x)[0], x)
    assert not torch.equal(model(text(seed=1)), model(text(seed=2)))
    model.dropout.p = 1.0
    assert torch.equal(model(text(seed=1)), model(text(seed=2)))


# --- the model ---


@pytest.mark.parametrize("training", [False, True])
def test_no_logit_depends_on_a_later_token(training: bool) -> None:
    model = build().train(training)
    tokens = text(1)
    logits = model(tokens)
    for position in range(12):
        changed = tokens.clone()
        changed[0, position] = (changed[0, position] + 1) % VOCABULARY
        differences = (model(changed) - logits).abs().amax(-1)[0]
        assert (differences[:position] < 1e-12).all()
        assert differences[position] > 1e-3


def test_at_evaluation_the_logits_of_a_sequence_do_not_depend_on_its_batch() -> None:
    model, tokens = build(), text(4, 9)
    torch.testing.assert_close(model(tokens)[2:3], model(tokens[2:3]))
    torch.testing.assert_close(model(tokens)[:, :5], model(tokens[:, :5]))


def test_tokens_can_be_int32_or_int64() -> None:
    model, tokens = build(), text()
    assert torch.equal(model(tokens.int()), model(tokens))


def test_with_one_expert_the_model_equals_gpt2(dense_gpt2: Callable[[int, SwitchSize], nn.Module]) -> None:
    model = build(experts=1)
    gpt2 = dense_gpt2(VOCABULARY, SMALL).double().eval()
    ours = {
        name.replace("_weight", ".weight").replace("_bias", ".bias"): parameter[0]
        if "feed_forward.inner_" in name or "feed_forward.outer_" in name
        else parameter
        for name, parameter in model.named_parameters()
    }
    names = {
        "transformer.wte": "embedding",
        "transformer.wpe": "positions",
        "transformer.ln_f": "norm",
        ".ln_1": ".attention_norm",
        ".ln_2": ".feed_forward_norm",
        "transformer.h.": "blocks.",
        ".attn.c_attn": ".attention.inputs",
        ".attn.c_proj": ".attention.output",
        ".mlp.c_fc": ".feed_forward.inner",
        ".mlp.c_proj": ".feed_forward.outer",
    }
    with torch.no_grad():
        for name, parameter in gpt2.named_parameters():
            mapped = name
            for theirs, own in names.items():
                mapped = mapped.replace(theirs, own)
            source = ours.pop(mapped if mapped in ours else mapped.removesuffix(".weight"))
            # Linear layers of GPT-2 have transposed weights.
            parameter.copy_(source.T if "c_" in name and source.dim() == 2 else source)
        assert all("router" in name for name in ours)
        difference = gpt2(text()).logits - model(text())
    assert difference.abs().max() < 1e-10
    assert model.outputs(text()).balance.item() == 2


@pytest.mark.parametrize("experts", [1, 4])
def test_checkpointing_does_not_change_loss_and_gradients(experts: int) -> None:
    results = []
    for checkpointing in (False, True):
        model = build(experts, dropout=0.1, jitter=0.1, checkpointing=checkpointing).train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            logits, balance, _ = model.outputs(text())
            loss = F.cross_entropy(logits.flatten(0, 1), text(seed=6).flatten()) + 0.01 * balance
            loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append((loss.detach(), gradients))
    (loss, gradients), (again, recomputed) = results
    assert torch.equal(loss, again)
    for name, gradient in gradients.items():
        torch.testing.assert_close(recomputed[name], gradient, msg=name)


def test_checkpointing_recomputes_the_blocks() -> None:
    def flops(checkpointing: bool) -> int:
        model = build(1, checkpointing=checkpointing).train()
        return count(lambda: model(text(1)).sum().backward()).total

    assert flops(True) > flops(False)


def test_the_model_learns_to_repeat() -> None:
    tokens = torch.arange(12).remainder(3).repeat(4, 1)
    model = new(2)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(30):
        logits, balance, _ = model.outputs(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(model.eval()(tokens[:, :-1]).argmax(-1), tokens[:, 1:])


def test_under_autocast_the_router_computes_in_float32() -> None:
    model = new(4)
    x = torch.randn(6, 16, generator=seeded(1))
    exact = model.mixtures[0].probabilities(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.mixtures[0].probabilities(x), exact)
        logits, balance, _ = model.outputs(text())
    assert (logits.dtype, balance.dtype) == (torch.bfloat16, torch.float32)
    F.cross_entropy(logits.float().flatten(0, 1), text(seed=6).flatten()).add(balance).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_whole_model_can_be_bfloat16() -> None:
    model = new(4).bfloat16()
    logits, balance, _ = model.outputs(text())
    assert (logits.dtype, balance.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("experts", [1, 4])
def test_a_copied_pickled_or_exported_model_gives_the_same_logits(experts: int) -> None:
    model, tokens = build(experts, capacity_factor=0.5, dropout=0.1, jitter=0.1), text()
    with torch.no_grad():
        logits = model(tokens)
        assert torch.equal(copy.deepcopy(model)(tokens), logits)
        assert torch.equal(pickle.loads(pickle.dumps(model))(tokens), logits)
        shapes = {0: torch.export.Dim("n", min=2, max=64), 1: torch.export.Dim("length", min=2, max=SMALL.context)}
        exported = torch.export.export(model, (tokens,), dynamic_shapes=(shapes,)).module()
        for other in (tokens, text(2, 5), text(7, 12, seed=8), torch.zeros(2, 2, dtype=torch.int64)):
            torch.testing.assert_close(exported(other), model(other))


# --- initial weights ---


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


# --- growth ---


def grow(model: SwitchTransformer, chosen: list[list[int]], seed: int = 0) -> SwitchTransformer:
    """Return a copy of the model with copies of the chosen experts of each Switch layer."""
    grown, generator = copy.deepcopy(model), seeded(seed)
    for switch, leaves in zip(grown.mixtures, chosen, strict=True):
        for leaf in leaves:
            switch.split(leaf, generator)
    return grown


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


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"jitter": 0.1, "dropout": 0.1, "capacity_factor": 1.25}, {"accumulation": 3, "clip": 1.0}),
        ({"checkpointing": True, "dropout": 0.1}, {"accumulation": 2}),
        ({}, {"precision": "bf16"}),
        ({"capacity_factor": 4.0}, {"optimizer": "sgd"}),
        ({"experts": 1}, {}),
    ],
)
def test_a_stage_is_charged_the_same_as_with_full_counting(
    options: dict[str, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_settings = StageSettings(
        **{"epochs": 1, "batch_size": 6, "optimizer": "adam", "learning_rate": 0.01, "validation_batch": 4} | settings
    )
    model = new(**{"experts": 3} | options)
    models = [model, grow(model, [torch.tensor([0, 0])] * 2)]  # equal shapes except those of the experts
    train, valid = Examples(text(30), text(30, seed=6)), Examples(text(5, seed=7), text(5, seed=8))

    def charges() -> list[Charge]:
        meter, taken = Meter(), []
        for body in copy.deepcopy(models):
            with meter, torch.random.fork_rng(devices=[]):
                predictor = Predictor(nn.Identity(), body)
                train_stage(predictor, train, valid, stage_settings, StageGenerators(seeded(), seeded(), seeded(1)))
            taken.append(meter.take())
        return taken

    steps = []
    count_step = stage.train_mini_batch.fn
    monkeypatch.setattr(
        stage,
        "train_mini_batch",
        count_once(lambda *args: (steps.append(is_in_torch_dispatch_mode()), count_step(*args))),
    )
    once = charges()
    counted = sum(steps)
    monkeypatch.setattr(stage, "train_mini_batch", count_step)
    monkeypatch.setattr(step, "score_batch", step.score_batch.fn)
    assert once == charges()
    assert counted < len(steps)


# --- errors ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
        SwitchConfig(VOCABULARY, SMALL, **{"experts": 2, **options})


def test_an_empty_vocabulary_raises() -> None:
    with pytest.raises(ValueError, match="vocabulary=0.*at least 1"):
        SwitchConfig(0, SMALL, 2)


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


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(2, 13, dtype=torch.int64), "length 13.*12 tokens.*shorter sequences"),
        (torch.zeros(5, dtype=torch.int64), r"shape \(5,\), torch.int64.*\(n, T\)"),
        (torch.zeros(2, 5), r"shape \(2, 5\), torch.float32.*int32 or int64"),
    ],
)
def test_inputs_that_are_not_tokens_raise(tokens: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()(tokens)


@pytest.mark.parametrize("leaf", [-1, 4])
def test_splitting_an_expert_that_does_not_exist_raises(leaf: int) -> None:
    with pytest.raises(ValueError, match=f"leaf={leaf}.*0 to 3"):
        build().mixtures[0].split(leaf, seeded())
