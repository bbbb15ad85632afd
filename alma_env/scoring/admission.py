"""Admission of predictors: a predictor is deployed only if metered operations made its content."""

from __future__ import annotations

from torch import Tensor, nn

from alma_env.errors import UnmeteredTrainingError
from alma_env.metering.content.known_content import CHANGED
from alma_env.metering.content.storages import covers
from alma_env.metering.meter import Meter
from alma_env.scoring.fingerprint import Fingerprint, changed_tensors, tensor_hash
from alma_env.scoring.hidden_numbers import FEW
from alma_env.scoring.module_tree import named_buffers, named_parameters
from alma_env.scoring.spaces import UntrainedPredictor

_REMEDY = (
    "train inside `with env.meter:`, in the same thread, with PyTorch operations; charge work that PyTorch does not "
    "execute with env.meter.declare(flops, reason=...); pass an untrained predictor to "
    "reset(options={'predictor': module}), and None to step() until it is trained"
)
# Whether a new module is untrained, or was trained elsewhere, cannot be seen.
_NOT_MADE = f"was made by no metered operation: it {CHANGED}, or the predictor is new and untrained"
ANY_NUMBERS = "any numbers"  # in `known`: the episode was saved by a version that did not look at numbers


def require_metered(
    predictor: nn.Module,
    given: nn.Module,
    mark: Fingerprint,
    meter: Meter,
    known: frozenset[str],
    total_at_deployment: int,
    declared_at_deployment: int,
) -> None:
    """Raise UnmeteredTrainingError if parameters, buffers, arrays or other numbers changed without a charge.

    Call this function while the meter does not run, or is paused. `predictor` is the copy that will answer, and `given`
    the learner's module. `known` holds the content hashes of all tensors, arrays and numbers that were deployed before
    in the episode; the last two arguments are the FLOPs charged, and the FLOPs declared, before the last deployment.
    """
    if is_untrained(predictor) or meter.declared_total > declared_at_deployment:
        return
    name = type(predictor).__name__
    if not known.issuperset(mark.arrays):
        raise UnmeteredTrainingError(
            f"{name} holds NumPy arrays that were not deployed before: the work of NumPy cannot be counted; charge it "
            "with env.meter.declare(flops, reason=...), store constants in registered buffers, or deploy the untrained "
            "predictor with reset(options={'predictor': module})"
        )
    charged = meter.total > total_at_deployment
    if not known.issuperset(mark.tensors):
        _require_metered_tensors(name, changed_tensors(predictor, mark, known), given, meter, charged)
    if charged:
        return
    if mark.structure is None:
        raise UnmeteredTrainingError(
            f"{name} holds objects that cannot be described, so it counts as changed at every tick, but the meter "
            f"counted 0 FLOPs: {_REMEDY}"
        )
    changed = sum(count for content, count in mark.numbers if content not in known)
    if changed > FEW and ANY_NUMBERS not in known:
        raise UnmeteredTrainingError(
            f"{changed} numbers outside of the parameters of {name} changed, such as those in lists, texts or global "
            f"variables, but the meter counted 0 FLOPs: at most {FEW} may change without a charge; {_REMEDY}"
        )


def is_untrained(predictor: nn.Module) -> bool:
    """Return whether a predictor is a sample of the action space that has not changed."""
    # By the class's own method: a subclass or an attribute of the predictor can answer anything.
    return type(predictor) is UntrainedPredictor and UntrainedPredictor.is_pristine(predictor)


def _require_metered_tensors(
    name: str, changed: list[tuple[str, Tensor]], given: nn.Module, meter: Meter, charged: bool
) -> None:
    views = {path: one for path, one in (*named_parameters(given), *named_buffers(given)) if not covers(one)}
    few: dict[str, int] = {}  # numbers in buffers that may come from outside of the block, by their content
    for path, tensor in changed:
        is_parameter = isinstance(tensor, nn.Parameter)
        what = f"{'parameter' if is_parameter else 'buffer'} {path!r} of {name}"
        # The copy of a view is a storage of its own, which no block knows.
        view = views.get(path)
        made = meter.made(tensor if view is None or tensor_hash(view) != tensor_hash(tensor) else view)
        # Reading is not enough: a network that was trained elsewhere can be run while the meter is running.
        if made is None or not made.written or made.foreign:
            content = tensor_hash(tensor)
            others = sum(few.values()) - few.get(content, 0)
            if not is_parameter and charged and others + tensor.numel() <= FEW:
                few[content] = tensor.numel()
                continue
            why = made.foreign if made is not None and made.foreign else _NOT_MADE
            raise UnmeteredTrainingError(f"{what} {why}: {_REMEDY}")
        if not (made.counted or charged):
            raise UnmeteredTrainingError(
                f"{what} was not deployed before, but the meter counted 0 FLOPs, as for an untrained predictor: "
                f"{_REMEDY}"
            )
