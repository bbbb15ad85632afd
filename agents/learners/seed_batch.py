"""One stage of several runs that differ in their seeds alone, in one batched computation.

A small network spends its time between operations, not in them. The networks of all runs therefore lie side by side, as
the members of an ensemble do (`agents.stacked`), each with the data, the draws and the best epoch of its own run: the
numbers are those of one run after another, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from agents.anytime import Report
from agents.ens import Ens
from agents.members import MembersReport
from agents.networks import Predictor
from agents.seeding import stage_generators
from agents.single_model import SingleModel
from agents.stacked import Mixtures, stack
from agents.stage import Examples, StageReport, train_together
from agents.umix import UMix, UniformMixture, mixture_of
from alma_env import Ensemble

BatchedLearner = SingleModel | Ens | UMix


def train_batch(
    learners: Sequence[BatchedLearner], train: Sequence[Examples], valid: Sequence[Examples]
) -> list[Report]:
    """Have each learner train one stage on its own examples: ``learner.train`` of all of them at once.

    Args:
        learners: of one kind, with the same settings, and as many stages behind them.
        train: the examples of each, all of one number.
        valid: the validation parts of each, likewise.

    Raises:
        ValueError: the learners are not alike, or have different numbers of examples.
    """
    require_alike(learners)
    for name, parts in (("train", train), ("valid", valid)):
        if len({len(part) for part in parts}) != 1:
            sizes = ", ".join(str(len(part)) for part in parts)
            raise ValueError(f"{name}: {sizes} examples; learners in one batch need as many each")
    first = learners[0]
    predictors = [learner.begin_stage() for learner in learners]
    bodies = [body for predictor in predictors for body in _networks(predictor)]
    stacked = stack(bodies)
    drawn = [
        stage_generators(learner.seed, learner.stage + 1, member)
        for learner in learners
        for member in range(learner.members if isinstance(learner, Ens) else 1)
    ]
    reports = train_together(
        _normalise(predictors[0]),
        Mixtures(stacked, first.reduce, len(learners)) if isinstance(first, UMix) else stacked,
        _one_after_another(train),
        _one_after_another(valid),
        first.settings,
        orders=[generators["order"] for generators in drawn],
        augments=[generators["augment"] for generators in drawn],
        groups=len(learners),
        engine=first.engine,
        on_epoch=first.on_epoch,
    )
    stacked.hand_back(bodies)
    for learner, predictor in zip(learners, predictors, strict=True):
        learner.end_stage(predictor)  # type: ignore[arg-type]
    return _reports(first, reports)


def require_alike(learners: Sequence[BatchedLearner]) -> None:
    """Raises ValueError unless there are several learners that one batch can train, alike in all but their seeds."""
    if len(learners) < 2:
        raise ValueError(f"{len(learners)} learners: a batch has at least 2; train a single one by itself")
    for learner in learners:
        if not isinstance(learner, BatchedLearner):
            raise ValueError(
                f"a learner of type {type(learner).__name__}: only SM, Ens and UMix are trained in a batch"
            )
    first = _all_but_the_seed(learners[0])
    for learner in learners[1:]:
        for name, value in _all_but_the_seed(learner).items():
            if value != first.get(name):
                raise ValueError(
                    f"{name}={first.get(name)!r} and {value!r} in one batch: learners may differ in their seeds only"
                )


def _all_but_the_seed(learner: BatchedLearner) -> dict[str, object]:
    names = ("settings", "stage", "engine", "from_scratch", "members", "reduce")
    return {"type": type(learner)} | {name: getattr(learner, name) for name in names if hasattr(learner, name)}


def _networks(predictor: nn.Module) -> list[nn.Module]:
    if isinstance(predictor, Ensemble):
        return list(predictor.members)
    assert isinstance(predictor, Predictor)
    return list(mixture_of(predictor).members) if isinstance(predictor.body, UniformMixture) else [predictor.body]


def _normalise(predictor: nn.Module) -> nn.Module:
    return predictor.prepare if isinstance(predictor, Ensemble) else predictor.get_submodule("normalize")


def _one_after_another(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _reports(learner: BatchedLearner, reports: Sequence[StageReport]) -> list[Report]:
    """One report per learner."""
    if not isinstance(learner, Ens):
        return list(reports)
    members = learner.members
    return [MembersReport(tuple(reports[start : start + members])) for start in range(0, len(reports), members)]
