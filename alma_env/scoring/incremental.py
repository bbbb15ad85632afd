"""Incremental scoring of a growing ensemble: only the new members are run.

ALMA paper, section 4: with one member per mega-batch of MNIST, a growing ensemble ends with 500 members. The
environment knows how `Ensemble` combines its members and keeps the sum of their contributions on the test set. For an
ensemble that starts with the same members, it adds the contributions of the new ones, so that the cost of a stream is
linear in its length.
"""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from alma_env.errors import AlmaError, PredictorError, in_context
from alma_env.metering.function_cost import count
from alma_env.scoring.ensemble import Ensemble
from alma_env.scoring.evaluation import Answer, answer, device_of, freeze, reproducible, require_comparable, run
from alma_env.scoring.fingerprint import Fingerprint, Kind, fingerprint
from alma_env.scoring.hidden_numbers import FEW
from alma_env.scoring.module_tree import attributes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alma_env.scoring.normalised import NormalisedInputs
    from alma_env.scoring.tasks import Task


@dataclass(frozen=True)
class ScoredEnsemble:
    """The members that were run on the test set, in order, and the sum of their contributions."""

    prepare: Fingerprint  # of the preparation that all members share
    space: str
    members: tuple[Fingerprint, ...]
    total: Tensor  # sum of the members' contributions, (n, ...)
    answer: Tensor  # the part of the ensemble's logits that the task keeps, (n, ...)
    prepare_flops: float  # per example, charged once
    inference_flops: float  # per example
    steady_flops: Mapping[Kind, float]  # per example, of members for which all batches had the same cost


def score(
    predictor: nn.Module,
    mark: Fingerprint,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    steady_flops: float | None,
    before: ScoredEnsemble | None,
    inputs: NormalisedInputs | None = None,
) -> tuple[Answer, ScoredEnsemble | None]:
    """Return the answer of a predictor, and the record for the next call if it is an ensemble.

    For classes, the answer of an ensemble equals that of `evaluation.answer` to the last bit.

    Args:
        predictor: a plain ensemble, or the return value of `evaluation.freeze`.
        mark: its fingerprint; that of a plain ensemble has parts.
        x, y, task, batch_size: see `evaluation.run`.
        steady_flops: see `evaluation.run`; not for ensembles.
        before: the record of the last ensemble on the same test set, or None. Its members are not run again if the
            ensemble starts with them.
        inputs: see `evaluation.run`.
    """
    if not (isinstance(predictor, Ensemble) and mark.parts and task.keeps_enough_for(predictor)):
        body = predictor
        if mark.parts:
            body = freeze(predictor)
            _require_equal(body, mark, "the ensemble")
        return answer(body, x, y, task=task, batch_size=batch_size, steady_flops=steady_flops, inputs=inputs), None
    prepare, *members = mark.parts
    marks = tuple(members)
    steady = {} if before is None or not prepare.same_as(before.prepare) else dict(before.steady_flops)

    def run_member(number: int) -> tuple[Tensor, float]:
        """Run a member as a separate predictor with its preparation, so that the other members have no effect."""
        single, kind = freeze(nn.Sequential(predictor.prepare, predictor.members[number])), marks[number].kind
        for (place, copied), mark in zip(_children(single), (prepare, marks[number]), strict=True):
            what = f"member {number}" if place == "1" else "the preparation"
            _require_equal(copied, mark, f"{what} of the ensemble")
        known = None if kind is None else steady.pop(kind, None)
        try:
            kept, flops, is_steady = run(
                single, x, y, task=task, batch_size=batch_size, steady_flops=known, inputs=inputs
            )
        except PredictorError as error:
            raise in_context(error, f"member {number} of the ensemble") from error
        if kind is not None and is_steady:
            steady[kind] = flops
        return kept, flops

    if before is None or not _starts_with(before, prepare, predictor.space, marks):
        prepare_flops = _cost_of_preparing(predictor, x[:batch_size])
        kept, flops = run_member(0)
        part = task.part(kept, predictor)
        before = ScoredEnsemble(prepare, predictor.space, marks[:1], part, kept, prepare_flops, flops, steady)
    total, flops = before.total, before.inference_flops
    for number in range(len(before.members), len(marks)):
        kept, cost = run_member(number)
        total = predictor.add(total, task.part(kept, predictor))
        flops += cost - before.prepare_flops
    kept = before.answer if len(marks) == len(before.members) else predictor.mean(total, len(marks))
    require_comparable(predictor, kept)  # a member's infinite logits are comparable; their mean is not
    scored = ScoredEnsemble(prepare, predictor.space, marks, total, kept, before.prepare_flops, flops, steady)
    return Answer(task.error(kept, y), flops), scored


def _children(module: nn.Module) -> ItemsView[str, nn.Module]:
    children: dict[str, nn.Module] = attributes_of(module)["_modules"]
    return children.items()


def _require_equal(copied: nn.Module, mark: Fingerprint, what: str) -> None:
    """Raise PredictorError if the copy that answers is not what `mark` describes."""
    if _numbers_of(fingerprint(copied)) != _numbers_of(mark):
        raise PredictorError(
            f"{what}: its copy has other content than the module itself, so that what answers is not what was "
            "trained; do not change the content in __deepcopy__ or __reduce__"
        )


def _numbers_of(mark: Fingerprint) -> tuple[object, ...]:
    """Return what a copy must keep: the order of a set and the attributes of a hook may change in an honest one."""
    many = tuple(place for place in mark.numbers if place[1] > FEW)
    return mark.tensors, mark.arrays, mark.parameters, mark.buffers, many


def _cost_of_preparing(ensemble: Ensemble, part: NDArray[Any]) -> float:
    """Return the FLOPs per example of the preparation, on raw test inputs."""
    device = device_of(nn.Sequential(ensemble.prepare, ensemble.members[0]))
    prepare, batch = freeze(ensemble.prepare), torch.from_numpy(part.copy()).to(device)
    try:
        with reproducible(device):
            return count(prepare, batch).total / len(part)
    except AlmaError:
        raise
    except Exception as error:
        raise PredictorError(
            f"the preparation of the ensemble raised {type(error).__name__} on a raw batch of shape "
            f"{tuple(batch.shape)} and dtype {batch.dtype}: {error}; a preparation must accept raw inputs"
        ) from error


def _starts_with(before: ScoredEnsemble, prepare: Fingerprint, space: str, marks: tuple[Fingerprint, ...]) -> bool:
    known = before.members
    return (
        prepare.same_as(before.prepare)
        and space == before.space
        and len(known) <= len(marks)
        and all(mark.same_as(old) for mark, old in zip(marks, known, strict=False))
    )
