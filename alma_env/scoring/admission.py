"""Admission of predictors: a predictor is deployed only if metered operations made its parameters."""

from __future__ import annotations

from torch import nn

from alma_env.errors import UnmeteredTrainingError
from alma_env.metering.meter import Meter
from alma_env.scoring.fingerprint import Fingerprint, changed_parameters
from alma_env.scoring.spaces import UntrainedPredictor

_REMEDY = (
    "train inside `with env.meter:`, in the same thread, with PyTorch operations; charge work that PyTorch does not "
    "execute with env.meter.declare(flops, reason=...); pass an untrained predictor to "
    "reset(options={'predictor': module})"
)


def require_metered(
    predictor: nn.Module,
    mark: Fingerprint,
    meter: Meter,
    known: frozenset[str],
    total_at_deployment: int,
    declared_at_deployment: int,
) -> None:
    """Raise UnmeteredTrainingError if parameters, buffers or arrays changed without a charge.

    Call this function while the meter does not run, or is paused. `known` holds the content hashes of all tensors and
    arrays that were deployed before in the episode; the last two arguments are the FLOPs charged, and the FLOPs
    declared, before the last deployment.
    """
    # By the class's own method: a subclass or an attribute of the predictor can answer anything.
    untrained = type(predictor) is UntrainedPredictor and UntrainedPredictor.is_pristine(predictor)
    if untrained or meter.declared_total > declared_at_deployment:
        return
    name = type(predictor).__name__
    if not known.issuperset(mark.arrays):
        raise UnmeteredTrainingError(
            f"{name} holds NumPy arrays of floats that were not deployed before: the work of NumPy cannot be counted; "
            "charge it with env.meter.declare(flops, reason=...), store constants in registered buffers, or deploy the "
            "untrained predictor with reset(options={'predictor': module})"
        )
    if known.issuperset(mark.tensors):
        return  # only the structure changed, or earlier content is deployed again
    charged = meter.total > total_at_deployment
    changed = changed_parameters(predictor, mark, known)
    for path, parameter in changed:
        what = f"parameter {path!r} of {name} changed"
        provenance = meter.provenance(parameter)
        # Reading is not enough: a network that was trained elsewhere can be run while the meter is running.
        if provenance is None or not provenance.written:
            raise UnmeteredTrainingError(f"{what} while the meter was not running: {_REMEDY}")
        if not (provenance.counted or charged):
            raise UnmeteredTrainingError(f"{what}, but the meter counted 0 FLOPs: {_REMEDY}")
    if not (changed or charged):
        raise UnmeteredTrainingError(f"buffers of {name} changed, but the meter counted 0 FLOPs: {_REMEDY}")
