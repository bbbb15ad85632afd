"""gMoE, the growing mixture of experts: experts are split where the loss is (ALMA paper, section 4; Algorithm 2).

grow:     per mixture layer, L_j = Σ_{(x,y) ∈ V} π_j(z(x)) · loss(x, y);  split s = argmax_j L_j into itself and a copy
stage k:  as SM, on the grown network
predict:  argmax f(x; θ_k)

With a tree of gates a growth does not change the function, and before the first one the network is the single model's,
draw by draw. On text the mixtures are Switch layers, where π_j is 1 for a token's expert, and the experts with the
largest L_j are copied, several at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents import parallel
from agents.members import WIDEST_TOGETHER
from agents.mixture_networks import MixtureNetwork, MixtureVGG19, build_mixture, mixture_body
from agents.networks import Predictor
from agents.seeding import generator, stage_generators
from agents.single_model import Build
from agents.stacked_mixture import StackedMixture, can_stack_experts
from agents.stage import Engine, Examples, OnEpoch, StageReport, StageSettings, train_stage
from agents.switch import SwitchLayer
from agents.tree import MixtureLayer, Routing
from alma_env import meter

SplitBy = Literal["loss", "usage", "random"]


class GMoE:
    """A learner that fine-tunes one network and gives every mixture layer one more expert at each growth.

    Each training and each growth makes a new predictor; one that was handed out never changes.

    Args:
        build: makes the untrained predictor, with a `MixtureMLP` or `MixtureVGG19` as its body.
        settings: recipe of a stage.
        seed: run seed, from which initialisation, data order, augmentation, routing and new gates are derived.
        gating: ``soft`` weighs all experts; ``hard`` sends each example to one.
        straight_through: how hard gates are trained, see `Routing`.
        split_by: which leaf is split: that with the largest ``loss`` on V, weighted by how much each example uses it;
            the largest ``usage`` Σ π_j, as the authors' code does; or a ``random`` one.
        grow_by: how many experts, those with the largest values, are split in each mixture layer: at every growth,
            or, of several numbers, at the first, the second and so on; the last holds for all later ones.
        init_experts: experts per mixture layer before the first growth.
        tree: False is the flat ablation: one softmax over all experts, whose growth changes the function.
        fixed: refuse to grow: with two initial experts, the fixed mixture of experts.
        from_scratch: start every stage from a new random initialisation of all weights of the grown architecture, so
            that its experts are no longer copies; only meaningful with replay.
        together: compute all experts at once while training; None: where that is possible and faster.
        engine: how a stage is computed; a mixture runs on ``plain`` alone, since a growth would compile it anew.
        device: where to train.
        on_epoch: told after every epoch, for progress displays.

    Raises:
        ValueError: a hyper-parameter breaks its rule.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        gating: Literal["soft", "hard"] = "soft",
        straight_through: Literal["dense", "sparse"] = "dense",
        split_by: SplitBy = "loss",
        grow_by: int | Sequence[int] = 1,
        init_experts: int = 1,
        tree: bool = True,
        fixed: bool = False,
        from_scratch: bool = False,
        together: bool | None = None,
        engine: Engine = "plain",
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> None:
        if split_by not in ("loss", "usage", "random"):
            raise ValueError(f"split_by={split_by!r}: choose one of loss, usage, random")
        if engine != "plain":
            raise ValueError(f"engine={engine!r} with agent 'gmoe': a growing network is not compiled; use 'plain'")
        if together and gating == "hard":
            raise ValueError("together=True with gating='hard': each example has its own expert; leave together out")
        self.settings = settings
        self.seed = seed
        self.routing = Routing(gating, straight_through, tree)
        self.split_by = split_by
        self.grow_by = _numbers(grow_by)
        self.growths = 0
        self.init_experts = init_experts
        self.fixed = fixed
        self.from_scratch = from_scratch
        self.together = together
        self.on_epoch = on_epoch
        self.stage = 0
        self._build = build
        self._device = torch.device(device)
        self.predictor = self._untrained(stage=1)
        leaves = _mixtures(self.predictor)[0].leaves
        for number in self.grow_by:
            if number > leaves:
                raise ValueError(
                    f"grow_by={grow_by!r}: {number} experts cannot be split when there are {leaves}; split at most as "
                    "many as there are, or begin with more"
                )
            leaves += number

    def _untrained(self, stage: int, trees: list[tuple[int, ...]] | None = None) -> Predictor:
        """A new predictor; its mixtures grow to be `trees`, with untrained experts, if these are given."""
        drawn = generator(self.seed, "init", stage=stage)
        predictor = build_mixture(self._build, drawn, self.init_experts, self.routing)
        if trees is not None:
            for layer, splits in zip(_mixtures(predictor), trees, strict=True):
                layer.regrow(splits, drawn)
        return predictor.to(self._device).eval()

    def _trees(self) -> list[tuple[int, ...]]:
        return [layer.splits for layer in _mixtures(self.predictor)]

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Fine-tune on T with selection on V, and keep the best epoch."""
        stage = self.stage + 1
        if self.from_scratch and stage > 1:
            predictor = self._untrained(stage, self._trees())
        else:
            predictor = copy.deepcopy(self.predictor)
        body = mixture_body(predictor)
        together = self._pays(body) if self.together is None else self.together
        stacked = (
            StackedMixture(body) if isinstance(body, MixtureNetwork) and together and can_stack_experts(body) else None
        )
        report = train_stage(
            predictor if stacked is None else Predictor(predictor.normalize, stacked),
            train,
            valid,
            self.settings,
            on_epoch=self.on_epoch,
            **stage_generators(self.seed, stage),
        )
        if stacked is not None and isinstance(body, MixtureNetwork):
            stacked.hand_back(body)
            predictor.eval()
        self.stage, self.predictor = stage, predictor
        return report

    def _pays(self, body: nn.Module) -> bool:
        """Whether computing all experts at once is possible, and faster."""
        if not isinstance(body, MixtureNetwork):
            return False
        classifier = body[-1]
        assert isinstance(classifier, nn.Linear)
        wide = isinstance(body, MixtureVGG19) and classifier.in_features > WIDEST_TOGETHER
        return can_stack_experts(body) and not (wide and self._device.type == "cpu")

    def grow(self, train: Examples, valid: Examples) -> None:
        """Split the losing expert of every mixture layer, or several, in one pass over V. T is not looked at.

        Raises:
            ValueError: the mixture is fixed.
        """
        if self.fixed:
            raise ValueError(
                "grow with a fixed mixture of experts: it keeps its experts; use growth='never', or the agent 'gmoe'"
            )
        predictor = copy.deepcopy(self.predictor)
        layers = _mixtures(predictor)
        # By the number of splits, so that two growths before one stage draw different gates.
        drawn = [
            generator(self.seed, "grow", stage=len(layer.splits) + 1, member=number)
            for number, layer in enumerate(layers)
        ]
        k = self.grow_by[min(self.growths, len(self.grow_by) - 1)]
        if self.split_by == "random":
            losing = [
                torch.randperm(layer.leaves, generator=draws)[:k] for layer, draws in zip(layers, drawn, strict=True)
            ]
        else:
            with meter.phase("growth"):
                totals = leaf_totals(predictor, valid, self.settings.validation_batch, self.split_by)
            losing = [total.argsort(descending=True, stable=True)[:k] for total in totals]  # of equals the leftmost
        for layer, leaves, draws in zip(layers, losing, drawn, strict=True):
            for leaf in sorted(leaves.tolist(), reverse=True):  # a split moves the leaves to its right
                layer.split(leaf, draws)
        self.growths += 1
        self.predictor = predictor

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers, the splits of each mixture layer and the number of stages."""
        return {
            "stage": self.stage,
            "growths": self.growths,
            "trees": [list(splits) for splits in self._trees()],
            "predictor": self.predictor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``."""
        predictor = self._untrained(1, [tuple(splits) for splits in state["trees"]])
        predictor.load_state_dict(state["predictor"])
        self.stage, self.growths, self.predictor = state["stage"], state["growths"], predictor


@torch.no_grad()
def leaf_totals(
    predictor: Predictor, valid: Examples, batch_size: int, split_by: Literal["loss", "usage"] = "loss"
) -> list[Tensor]:
    """Per mixture layer the losses L_j that its leaves answer for, or their usage: float64 (leaves,).

    In every layer they add up to the sum of all examples' losses, in nats, or to the number of examples; on text every
    token is one. `predictor` is put into eval mode. Of several ranks each looks at its share of the examples, and all
    are given the totals.
    """
    body = mixture_body(predictor.eval())
    own = parallel.share(0, len(valid))
    valid = Examples(valid.x[own], valid.y[own]).to(next(body.parameters()).device)
    totals = [torch.zeros(layer.leaves, dtype=torch.float64, device=valid.y.device) for layer in body.mixtures]
    for x, y in zip(torch.split(valid.x, batch_size), torch.split(valid.y, batch_size), strict=True):
        logits, shares = body.forward_with_shares(predictor.normalize(x))
        losses = F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction="none")
        value = (losses if split_by == "loss" else torch.ones_like(losses)).double()[:, None]
        for total, share in zip(totals, shares, strict=True):
            total += (share.flatten(0, -2).double() * value).sum(0)
    return [parallel.added_up(total) for total in totals]


def _mixtures(predictor: Predictor) -> Sequence[MixtureLayer | SwitchLayer]:
    return mixture_body(predictor).mixtures


def _numbers(grow_by: int | Sequence[int]) -> list[int]:
    numbers = list(grow_by) if isinstance(grow_by, Sequence) else [grow_by]
    if not numbers or any(isinstance(k, bool) or not isinstance(k, Integral) or k < 1 for k in numbers):
        raise ValueError(
            f"grow_by={grow_by!r}: must be a whole number from 1, or several of them, for example grow_by=(2, 2, 4)"
        )
    return list(map(int, numbers))
