"""The Switch Transformer: its equality with GPT-2 for one expert, its loss, and the charge of a stage."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from agents.networks.mlp_vgg import Predictor
from agents.networks.switch_size import SwitchSize
from agents.training import stage, step
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, train_stage
from alma_env.metering import Charge, Meter, count, count_once

from ..random_examples import seeded
from .small_switch import SMALL, VOCABULARY, build, grow, new, text


def test_the_balance_of_the_model_is_the_sum_over_its_switch_layers() -> None:
    model = build()
    with torch.no_grad():
        for switch in model.mixtures:
            switch.router.zero_()
    assert model.outputs(text()).balance.item() == pytest.approx(2)


def test_dropout_is_applied_to_the_embeddings_and_to_both_residual_branches() -> None:
    model = build(experts=1).train()
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=seeded())
    for block in model.blocks:
        block.dropout.p = 1.0
        assert torch.equal(block(x)[0], x)
    assert not torch.equal(model(text(seed=1)), model(text(seed=2)))
    model.dropout.p = 1.0
    assert torch.equal(model(text(seed=1)), model(text(seed=2)))


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


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_training_loss_is_the_mean_cross_entropy_and_the_weighted_balance_loss(dtype: torch.dtype) -> None:
    model = build(capacity_factor=0.5).train()
    x, y = text().to(dtype), text(seed=6).to(dtype)
    logits, balance, _ = model.outputs(x)
    expected = F.cross_entropy(logits.flatten(0, 1), y.flatten().long()) + 0.3 * balance
    loss = model.training_loss(x, y, 0.3)
    torch.testing.assert_close(loss, expected)
    parameters = list(model.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters))


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
