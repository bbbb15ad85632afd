"""One stage of several learners that differ only in their seeds, computed together.

A small network spends its time between operations, not in them. The networks of all learners are therefore stored side
by side, as the members of an ensemble are (`agents.networks.stacked`). Each keeps its own data, random numbers and best
epoch, so the results equal those of one learner after another, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from agents.learners.anytime import Report
from agents.learners.ens import Ens
from agents.learners.sm import SingleModel
from agents.learners.umix import UMix, mixture_of
from agents.networks.mlp_vgg import Predictor
from agents.networks.stacked import Mixtures, stack
from agents.networks.uniform_mixture import UniformMixture
from agents.training.engines import ENGINES
from agents.training.members import MembersReport
from agents.training.seeding import stage_generators
from agents.training.stage import Examples, StageReport, train_stage
from alma_env import Ensemble

BatchedLearner = SingleModel | Ens | UMix


def train_batch(
    learners: Sequence[BatchedLearner], train: Sequence[Examples], valid: Sequence[Examples]
) -> list[Report]:
    """Run one stage of each learner on its own examples: ``learner.train`` of all learners together.

    Raises:
        ValueError: the learners differ in more than their seeds, or in their numbers of examples.
    """
    require_equal_settings(learners)
    for name, parts in (("train", train), ("valid", valid)):
        if len({len(part) for part in parts}) != 1:
            sizes = ", ".join(str(len(part)) for part in parts)
            raise ValueError(f"{name}: {sizes} examples; learners in one batch need equal numbers of examples")
    first = learners[0]
    predictors = [learner.begin_stage() for learner in learners]
    bodies = [body for predictor in predictors for body in _networks(predictor)]
    stacked = stack(bodies)
    members = first.members if isinstance(first, Ens) else 1  # networks with their own random numbers, per learner
    reports = train_stage(
        Predictor(
            _normalize(predictors[0]),
            Mixtures(stacked, first.reduce, len(learners)) if isinstance(first, UMix) else stacked,
        ),
        _join(train),
        _join(valid),
        first.settings,
        [each for learner in learners for each in stage_generators(learner.seed, learner.stage + 1, members)],
        groups=len(learners),
        engine=ENGINES[first.engine],
        on_epoch=first.on_epoch,
    )
    stacked.copy_to(bodies)
    for learner, predictor in zip(learners, predictors, strict=True):
        learner.end_stage(predictor)  # type: ignore[arg-type]
    return _reports_of_learners(first, reports)


def require_equal_settings(learners: Sequence[BatchedLearner]) -> None:
    """Raise ValueError unless there are at least two learners of a supported type that differ only in their seeds."""
    if len(learners) < 2:
        raise ValueError(f"{len(learners)} learners: a batch has at least 2; call train of a single learner")
    for learner in learners:
        if not isinstance(learner, BatchedLearner):
            raise ValueError(f"a learner of type {type(learner).__name__}: only SM, Ens and UMix can train in a batch")
    first = _setting(learners[0])
    for learner in learners[1:]:
        for name, value in _setting(learner).items():
            if value != first.get(name):
                raise ValueError(
                    f"{name}={first.get(name)!r} and {value!r} in one batch: learners may differ only in their seeds"
                )


def _setting(learner: BatchedLearner) -> dict[str, object]:
    """Return everything about a learner except its seed and its weights."""
    names = ("settings", "stage", "engine", "from_scratch", "members", "reduce")
    return {"type": type(learner)} | {name: getattr(learner, name) for name in names if hasattr(learner, name)}


def _networks(predictor: nn.Module) -> list[nn.Module]:
    if isinstance(predictor, Ensemble):
        return list(predictor.members)
    assert isinstance(predictor, Predictor)
    return list(mixture_of(predictor).members) if isinstance(predictor.body, UniformMixture) else [predictor.body]


def _normalize(predictor: nn.Module) -> nn.Module:
    return predictor.prepare if isinstance(predictor, Ensemble) else predictor.get_submodule("normalize")


def _join(parts: Sequence[Examples]) -> Examples:
    return Examples(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


def _reports_of_learners(learner: BatchedLearner, reports: Sequence[StageReport]) -> list[Report]:
    """Return one report per learner, from one report per network or mixture."""
    if not isinstance(learner, Ens):
        return list(reports)
    members = learner.members
    return [MembersReport(tuple(reports[start : start + members])) for start in range(0, len(reports), members)]
