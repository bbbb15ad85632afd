"""Was a predictor made while the meter ran? What was not is refused."""

from __future__ import annotations

from torch import nn

from alma_env.errors import UnmeteredTrainingError
from alma_env.meter import Meter
from alma_env.predictor import Fingerprint, changed_parameters
from alma_env.spaces import UntrainedPredictor

_REMEDY = (
    "train inside `with env.meter:`, in the same thread, with PyTorch operations; charge work that PyTorch does not "
    "execute with env.meter.declare(flops, reason=...); an untrained predictor belongs to "
    "reset(options={'predictor': module})"
)


def require_metered(
    predictor: nn.Module,
    mark: Fingerprint,
    meter: Meter,
    known: set[str],
    total_at_deployment: int,
    declared_at_deployment: int,
) -> None:
    """Refuse parameters that changed while the meter was not running, or ran and counted nothing.

    Args:
        predictor: what is to be deployed.
        mark: its fingerprint.
        meter: the episode's; not running, or paused.
        known: content of all tensors and arrays that were deployed before in the episode.
        total_at_deployment: FLOPs that had been charged when a predictor was deployed last.
        declared_at_deployment: those of them that had been declared.

    Raises:
        UnmeteredTrainingError: it holds what no charged training left there.
    """
    untrained = isinstance(predictor, UntrainedPredictor) and predictor.is_pristine()
    if untrained or meter.declared_total > declared_at_deployment:
        return
    name = type(predictor).__name__
    if not known.issuperset(mark.arrays):
        raise UnmeteredTrainingError(
            f"{name} holds NumPy arrays of floats that were not deployed before, and NumPy's work cannot be counted: "
            "charge it with env.meter.declare(flops, reason=...); keep constants in registered buffers, or deploy them "
            "untrained with reset(options={'predictor': module})"
        )
    if known.issuperset(mark.tensors):
        return  # only the structure changed, or what was deployed earlier in the episode comes back
    charged = meter.total > total_at_deployment
    changed = changed_parameters(predictor, mark, known)
    for path, parameter in changed:
        what = f"parameter {path!r} of {name} changed"
        seal = meter.sealed(parameter)
        # Merely read under the meter is not enough: a network trained elsewhere may be run there.
        if seal is None or not seal.written:
            raise UnmeteredTrainingError(f"{what} while the meter was not running: {_REMEDY}")
        if not (seal.counted or charged):
            raise UnmeteredTrainingError(f"{what}, but the meter counted 0 FLOPs: {_REMEDY}")
    if not (changed or charged):
        raise UnmeteredTrainingError(f"buffers of {name} changed, but the meter counted 0 FLOPs: {_REMEDY}")
