"""gMoE, the growing mixture of experts (ALMA paper, section 4; Algorithm 2): growth splits the costliest experts.

grow:     per mixture layer, L_j = Σ_{(x,y) ∈ V} π_j(z(x)) · loss(x, y);  split s = argmax_j L_j into itself and a copy
stage k:  as SM, on the grown network
predict:  argmax f(x; θ_k)

With a tree of gates, a growth step does not change the function. Before the first growth step the network equals that
of the single model, including its random numbers. For text, the mixtures are Switch layers: π_j is 1 for a token's
expert, and a growth step may copy several experts, those with the largest L_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from agents.learners.network_learner import NetworkLearner
from agents.networks.gate_tree import Routing
from agents.networks.growing_layer import GrowingLayer
from agents.networks.mixture import build_mixture, mixture_body
from agents.networks.mlp_vgg import Predictor
from agents.training import distributed
from agents.training.stage import Examples
from alma_env.metering import meter
from alma_env.scoring.module_copy import copy_module

SplitBy = Literal["loss", "usage", "random"]


@dataclass(eq=False, kw_only=True)
class GMoE(NetworkLearner[Predictor]):
    """A learner that fine-tunes one network and adds an expert to every mixture layer at each growth step.

    Args:
        build: creates the untrained predictor from a generator of its initial weights; its body is a `MixtureNetwork`
            or a `SwitchTransformer`.
        trainer: settings, random numbers, device and engine.
        gating: ``soft`` weighs all experts; ``hard`` sends each example to one.
        straight_through: how to train hard gates, see `Routing`.
        split_by: which leaf to split: the one with the largest ``loss`` L_j on V, the one with the largest ``usage``
            Σ π_j, as in the authors' code, or a ``random`` one.
        grow_by: number of experts to split in each mixture layer at a growth step. A sequence gives the number for the
            first step, the second step and so on; its last value holds for all later steps.
        init_experts: experts per mixture layer before the first growth step.
        tree: False is the flat ablation: one softmax over all experts, so that growth changes the function.
        fixed: do not allow growth; with two initial experts, the fixed mixture of experts.
        from_scratch: start every stage from a new random initialisation of the grown architecture; only meaningful with
            replay. The experts are then no longer copies.
    """

    cannot_grow = "'moe': a fixed mixture has a fixed number of experts", "the agent 'gmoe'"
    gating: Literal["soft", "hard"] = "soft"
    straight_through: Literal["dense", "sparse"] = "dense"
    split_by: SplitBy = "loss"
    grow_by: int | Sequence[int] = 1
    init_experts: int = 1
    tree: bool = True
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.split_by not in get_args(SplitBy):
            raise ValueError(f"split_by={self.split_by!r}: must be one of {', '.join(get_args(SplitBy))}")
        self.routing = Routing(self.gating, self.straight_through, self.tree)
        self.growths = 0
        self._numbers = _growth_numbers(self.grow_by)
        super().__post_init__()
        leaves = _mixtures(self.predictor)[0].leaves
        for number in self._numbers:
            if number > leaves:
                raise ValueError(
                    f"grow_by={self.grow_by!r}: a growth step cannot split {number} of {leaves} experts; use at most "
                    f"{leaves}, or begin with more experts (init_experts; on text the width)"
                )
            leaves += number

    def initialise(self, stage: int) -> Predictor:
        """Return an untrained network; after the first stage, with the trees of the current one."""
        return self._untrained(stage, self._trees() if stage > 1 else None)

    def _untrained(self, stage: int, trees: list[tuple[int, ...]] | None) -> Predictor:
        """Return an untrained network. If `trees` are given, its mixtures have these trees."""
        weights = self.trainer.generator("init", stage=stage)
        predictor = build_mixture(self.build, weights, self.init_experts, self.routing)
        if trees is not None:
            for layer, splits in zip(_mixtures(predictor), trees, strict=True):
                layer.regrow(splits, weights)
        return predictor.to(self.trainer.device).eval()

    def _trees(self) -> list[tuple[int, ...]]:
        return [layer.splits for layer in _mixtures(self.predictor)]

    def grow(self, train: Examples, valid: Examples) -> None:
        """Split the experts of every mixture layer with the largest L_j, in one pass over V.

        Raises:
            CannotGrowError: the mixture is fixed.
        """
        if self.fixed:
            super().grow(train, valid)  # raises it
        predictor = copy_module(self.predictor)
        layers = _mixtures(predictor)
        # Derived from the number of splits, so that two growth steps before one stage draw different gates.
        generators = [
            self.trainer.generator("grow", stage=len(layer.splits) + 1, member=n) for n, layer in enumerate(layers)
        ]
        k = self._numbers[min(self.growths, len(self._numbers) - 1)]
        if self.split_by == "random":
            chosen = [
                torch.randperm(layer.leaves, generator=own)[:k] for layer, own in zip(layers, generators, strict=True)
            ]
        else:
            with meter.phase("growth"):
                totals = leaf_totals(predictor, valid, self.trainer.settings.validation_batch, self.split_by)
            chosen = [total.argsort(descending=True, stable=True)[:k] for total in totals]  # ties: the leftmost
        for layer, leaves, own in zip(layers, chosen, generators, strict=True):
            for leaf in sorted(leaves.tolist(), reverse=True):  # a split renumbers the leaves to its right
                layer.split(leaf, own)
        self.growths += 1
        self.predictor = predictor

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers, the splits of each mixture layer and the numbers of stages and growth steps."""
        trees = [list(splits) for splits in self._trees()]
        return super().state_dict() | {"growths": self.growths, "trees": trees}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        predictor = self._untrained(1, [tuple(splits) for splits in state["trees"]])
        predictor.load_state_dict(state["predictor"])
        self.stage, self.growths, self.predictor = state["stage"], state["growths"], predictor


@torch.no_grad()
def leaf_totals(
    predictor: Predictor, valid: Examples, batch_size: int, split_by: Literal["loss", "usage"] = "loss"
) -> list[Tensor]:
    """Return, per mixture layer, the loss L_j or the usage Σ π_j of each leaf: float64 (leaves,).

    In every layer the losses add up to the sum of all examples' losses in nats, and the usages to the number of
    examples. For text, every token is an example. `predictor` is put into eval mode. Each rank evaluates its share of
    the examples, and all ranks return the totals.
    """
    body = mixture_body(predictor.eval())
    own = distributed.share(0, len(valid))
    valid = Examples(valid.x[own], valid.y[own]).to(next(body.parameters()).device)
    totals = [torch.zeros(layer.leaves, dtype=torch.float64, device=valid.y.device) for layer in body.mixtures]
    for x, y in zip(torch.split(valid.x, batch_size), torch.split(valid.y, batch_size), strict=True):
        logits, shares = body.forward_with_shares(predictor.normalize(x))
        losses = F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction="none")
        value = (losses if split_by == "loss" else torch.ones_like(losses)).double()[:, None]
        for total, share in zip(totals, shares, strict=True):
            total += (share.flatten(0, -2).double() * value).sum(0)
    return [distributed.sum_over_ranks(total) for total in totals]


def _mixtures(predictor: Predictor) -> Sequence[GrowingLayer]:
    return mixture_body(predictor).mixtures


def _growth_numbers(grow_by: int | Sequence[int]) -> list[int]:
    numbers = list(grow_by) if isinstance(grow_by, Sequence) else [grow_by]
    if not numbers or any(isinstance(k, bool) or not isinstance(k, Integral) or k < 1 for k in numbers):
        raise ValueError(
            f"grow_by={grow_by!r}: must be a whole number, at least 1, or several; use for example grow_by=(2, 2, 4)"
        )
    return list(map(int, numbers))
