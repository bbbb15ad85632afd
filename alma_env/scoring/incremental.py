"""Scoring a growing ensemble without running again the members that were run before.

ALMA paper, section 4: with a member per mega-batch of MNIST a growing ensemble ends with 500. Since the environment
knows how `Ensemble` combines its members, it keeps the sum of their contributions on the test set, and an ensemble that
begins with the same members only adds the new ones: the cost of a stream is linear in its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from alma_env.ensemble import Ensemble
from alma_env.errors import AlmaError, PredictorError
from alma_env.meter import count
from alma_env.predictor import Answer, Fingerprint, device_of, freeze, run, undisturbed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alma_env.tasks import Task


@dataclass(frozen=True)
class Scored:
    """Members that were run on the test set, in order, and what they add up to.

    Attributes:
        prepare: content of what all members share.
        space: where they are averaged.
        members: content of each.
        total: sum of their contributions, (n, ...).
        answer: what the task keeps of the ensemble's logits, (n, ...).
        prepare_flops: FLOPs per example of what they share, which is charged once.
        inference_flops: FLOPs per example of all of it.
        steady: no batch cost more than another.
    """

    prepare: Fingerprint
    space: str
    members: tuple[Fingerprint, ...]
    total: Tensor
    answer: Tensor
    prepare_flops: float
    inference_flops: float
    steady: bool


def score_ensemble(
    ensemble: Ensemble,
    mark: Fingerprint,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    before: Scored | None,
) -> tuple[Answer, Scored] | None:
    """As `predictor.answer`, going on from the members that were scored `before`, where they lead.

    The same to the last bit for classes. None where the task cannot tell the ensemble's answer from what it keeps of
    its members'.
    """
    if not task.keeps_enough_for(ensemble):
        return None
    prepare, *members = mark.parts
    marks = tuple(members)
    if before is None or not _leads(before, prepare, ensemble.space, marks):
        prepare_flops = _cost_of_preparing(ensemble, x[:batch_size])
        kept, flops, steady = _run_member(ensemble, 0, x, y, task, batch_size)
        part = task.part(kept, ensemble)
        before = Scored(prepare, ensemble.space, marks[:1], part, kept, prepare_flops, flops, steady)
    total, flops, steady = before.total, before.inference_flops, before.steady
    for number in range(len(before.members), len(marks)):
        kept, cost, member_steady = _run_member(ensemble, number, x, y, task, batch_size)
        total = ensemble.add(total, task.part(kept, ensemble))
        flops += cost - before.prepare_flops
        steady = steady and member_steady
    answer = before.answer if len(marks) == len(before.members) else ensemble.mean(total, len(marks))
    scored = Scored(prepare, ensemble.space, marks, total, answer, before.prepare_flops, flops, steady)
    return Answer(error=task.error(answer, y), inference_flops=flops, steady=steady), scored


def _cost_of_preparing(ensemble: Ensemble, part: NDArray[Any]) -> float:
    """FLOPs per example, on raw test inputs."""
    device = device_of(nn.Sequential(ensemble.prepare, ensemble.members[0]))
    prepare, batch = freeze(ensemble.prepare), torch.from_numpy(part.copy()).to(device)
    try:
        with undisturbed(device):
            return count(prepare, batch).total / len(part)
    except AlmaError:
        raise
    except Exception as error:
        raise PredictorError(
            f"what the members of the ensemble share raised {type(error).__name__} on a raw batch of shape "
            f"{tuple(batch.shape)} and dtype {batch.dtype}: {error}"
        ) from error


def _run_member(
    ensemble: Ensemble, number: int, x: NDArray[Any], y: NDArray[Any], task: Task, batch_size: int
) -> tuple[Tensor, float, bool]:
    # With its preparation: a member is run as a predictor of its own, so that it does not matter which came before.
    alone = freeze(nn.Sequential(ensemble.prepare, ensemble.members[number]))
    try:
        return run(alone, x, y, task=task, batch_size=batch_size)
    except PredictorError as error:
        raise PredictorError(f"member {number} of the ensemble: {error}") from error


def _leads(before: Scored, prepare: Fingerprint, space: str, marks: tuple[Fingerprint, ...]) -> bool:
    known = before.members
    return (
        prepare.same_as(before.prepare)
        and space == before.space
        and len(known) <= len(marks)
        and all(mark.same_as(old) for mark, old in zip(marks, known, strict=False))
    )
