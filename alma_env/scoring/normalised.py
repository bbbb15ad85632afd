"""Predictors that say how they normalise, and the test inputs in normalised form.

Normalising 10,000 images of MNIST takes a third of the time of a small network's forward passes, and gives the same
numbers at every tick. So the environment keeps them. It does this for `Normalize` only, whose code it knows: other
modules could return something else at the next call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from alma_env.scoring.plain_module import has_only

LIMIT = 2**26  # most bytes of kept inputs: those of MNIST take 31 MB; for CIFAR-10 (123 MB) the networks dominate


class Normalize(nn.Module):
    """Raw inputs (n, C, ...) of any dtype to float32: `(x / scale - mean) / std`, per channel.

    `mean` and `std` hold one value per channel, or a single value for all channels.
    """

    offset: Tensor
    spread: Tensor

    def __init__(self, scale: float, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if scale <= 0 or any(value <= 0 for value in std):
            raise ValueError(
                f"scale={scale}, std={tuple(std)}: scale and std must be above 0; use for example scale=255"
            )
        if len(mean) != len(std):
            raise ValueError(f"mean={tuple(mean)}, std={tuple(std)}: give equal numbers of values, one per channel")
        self.register_buffer("offset", scale * torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("spread", scale * torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised float32 (n, C, ...) for raw inputs (n, C, ...)."""
        per_channel = (-1,) + (1,) * (x.dim() - 2)
        centred = x.float() - self.offset.view(per_channel)
        return centred.div_(self.spread.view(per_channel))  # in place, which halves the memory traffic


class Predictor(nn.Module):
    """A predictor in two parts: `normalize` maps raw inputs to the inputs of `body`, which returns logits."""

    def __init__(self, normalize: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.normalize = normalize
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of raw inputs (n, ...)."""
        logits: Tensor = self.body(self.normalize(x))
        return logits


def is_plain(normalize: nn.Module) -> TypeGuard[Normalize]:
    """Return whether a module is a `Normalize` without anything of its own.

    It then returns equal outputs for equal inputs, at no cost. A subclass, a hook or a `forward` of the instance could
    do other work, which the meter has to see.
    """
    if not (type(normalize) is Normalize and has_only(normalize, buffers=("offset", "spread"))):
        return False
    return all(type(buffer) is Tensor and buffer.dtype == torch.float32 for buffer in normalize.buffers())


class NormalisedInputs:
    """The test inputs of a stream as a `Normalize` returns them, for one `Normalize` at a time. A copy is empty."""

    def __init__(self) -> None:
        self._x: NDArray[Any] | None = None
        self._key: tuple[object, ...] = ()
        self._kept: list[Tensor] = []

    def __reduce__(self) -> tuple[type[NormalisedInputs], tuple[()]]:
        return NormalisedInputs, ()

    def batches_for(
        self, predictor: nn.Module, x: NDArray[Any], batch_size: int, device: torch.device
    ) -> tuple[nn.Module, Iterator[Tensor]] | None:
        """Return the body of a predictor and its inputs, batch by batch, as new tensors; None if none are kept.

        Args:
            predictor: the predictor, which is on `device`.
            x: raw test inputs (n, ...), which never change.
            batch_size: inputs in a batch; the last one may have fewer.
            device: the device of the inputs.
        """
        parts = _parts(predictor)
        if parts is None:
            return None
        normalize, body = parts
        key = (batch_size, device, *(buffer.cpu().numpy().tobytes() for buffer in normalize.buffers()))
        if self._x is not x or self._key != key:
            self._x, self._key, self._kept = x, key, []
            if 4 * x.size <= LIMIT:
                self._kept = _normalised(normalize, x, batch_size, device)
        # Copies: the body may write to its inputs. PyTorch also computes faster on them than on memory far away.
        return (body, (batch.clone() for batch in self._kept)) if self._kept else None


def _normalised(normalize: Normalize, x: NDArray[Any], batch_size: int, device: torch.device) -> list[Tensor]:
    """Return the normalised batches; none if `normalize` refuses them, because the evaluation reports its error."""
    raw = (torch.from_numpy(x[start : start + batch_size].copy()) for start in range(0, len(x), batch_size))
    try:
        return [normalize(batch.to(device)) for batch in raw]
    except Exception:
        return []


def _parts(predictor: nn.Module) -> tuple[Normalize, nn.Module] | None:
    """Return (normalize, body) if the predictor computes `body(normalize(x))` and nothing else."""
    if type(predictor) is Predictor and has_only(predictor, children=("normalize", "body")):
        normalize, body = predictor.normalize, predictor.body
    elif type(predictor) is nn.Sequential and has_only(predictor, children=("0", "1")):
        normalize, body = predictor
    else:
        return None
    # Hooks on all modules, such as those of a profiler, would miss the calls of `normalize`.
    listened: bool = nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    return (normalize, body) if is_plain(normalize) and not listened else None
