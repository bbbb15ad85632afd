"""A stage in C++: its networks, the states of their optimizers, and its examples."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.mixture import MixtureMLP
from agents.networks.mlp_vgg import MLP, VGG19_BLOCKS
from agents.networks.uniform_mixture import UniformMixture
from agents.training.augment import CropFlip
from agents.training.native import library as native
from agents.training.native.supported import (
    convolutions_of,
    expert_of,
    float_tensors,
    has_trees,
    layers_of,
    members_of,
    splits_of,
)
from agents.training.settings import StageSettings


@dataclass(frozen=True)
class NativeExamples:
    """Contiguous inputs `x`, labels `y` (n,) int64, and for bytes the float of each byte in each channel (C, 256)."""

    x: Tensor
    y: Tensor
    table: Tensor | None = None

    def structure(self) -> native.Examples:
        """Return the pointers to the tensors, which must stay alive."""
        return native.Examples(self.x.data_ptr(), self.y.data_ptr(), _pointer(self.table))


class NativeStage:
    """The networks of a stage, in C++; a context manager that frees their memory.

    Args:
        body: an MLP or a VGG19, also with mixtures of experts, or a uniform mixture of them.
        train: examples to train on.
        valid: examples to score on.
        settings: settings of the stage.

    Raises:
        MemoryError: the memory is short.
        RuntimeError: the C++ functions cannot be built.
    """

    def __init__(self, body: nn.Module, train: NativeExamples, valid: NativeExamples, settings: StageSettings) -> None:
        functions = native.library()
        if functions is None:
            raise RuntimeError("engine='native': its C++ functions cannot be built; use engine='auto' or 'plain'")
        self._functions = functions
        self._parts = train, valid  # C++ reads their memory
        self._train, self._valid = train.structure(), valid.structure()
        self._train_size, self._valid_size = len(train.y), len(valid.y)
        self._settings = settings
        self._members = members_of(body)
        mean = isinstance(body, UniformMixture) and body.reduce == "mean"
        optimizer = native.Settings(
            settings.optimizer == "adadelta",
            *(getattr(settings, name) for name in ("learning_rate", "momentum", "weight_decay", "rho", "eps")),
            1 / len(self._members) if mean else 1,
        )
        self._stage = _new_stage(functions, self._members, optimizer)
        if not self._stage:
            raise MemoryError(f"engine='native': the memory is short for the networks of a stage; {_REMEDY}")
        self._states = [torch.cat([t.detach().reshape(-1) for t in float_tensors(member)]) for member in self._members]
        for number, state in enumerate(self._states):
            functions.alma_read(self._stage, number, state.data_ptr())

    def __enter__(self) -> NativeStage:
        return self

    def __exit__(self, *_: object) -> None:
        self._functions.alma_delete(self._stage)

    def train_epoch(self, order: Tensor | None, crops: CropFlip | None) -> None:
        """Take the steps of an epoch.

        Args:
            order: the examples in their order, int64 (n,); None takes all examples as one mini-batch.
            crops: the augmentation of each example in this order.
        """
        cut = native.Crops()
        if crops is not None:
            parts = [part.contiguous() for part in (crops.top, crops.left, crops.mirror)]
            cut = native.Crops(*map(_pointer, parts), self._settings.padding)
        sizes = self._train_size, self._settings.batch_size
        if self._functions.alma_train_epoch(self._stage, self._train, _pointer(order), cut, *sizes):
            raise MemoryError(f"engine='native': the memory is short for a mini-batch; {_REMEDY}")

    def score(self) -> tuple[float, float]:
        """Return the mean cross-entropy and the error fraction on V, rounded to float32 as in the plain engine."""
        loss, wrong, size = ctypes.c_double(), ctypes.c_long(), self._valid_size
        if self._functions.alma_score(self._stage, self._valid, size, loss, wrong):
            raise MemoryError(f"engine='native': the memory is short for the validation examples; {_REMEDY}")
        return float32(float32(loss.value) / size), float32(wrong.value / size)

    def state(self) -> list[Tensor]:
        """Return the `float_tensors` of each network, flat, in memory that the next call overwrites."""
        for number, state in enumerate(self._states):
            self._functions.alma_write(self._stage, number, state.data_ptr())
        return self._states


_REMEDY = "use a smaller batch_size or width, fewer processes at once, or engine='plain'"


def _new_stage(functions: ctypes.CDLL, members: list[nn.Module], optimizer: native.Settings) -> int | None:
    body, layers = members[0], layers_of(members[0])
    splits = splits_of(body)
    gates = (
        _array(ctypes.c_int, map(len, splits)),
        _array(ctypes.c_int, (split for own in splits for split in own)),
        has_trees(body),
    )
    linear = [part for part in body.modules() if isinstance(part, nn.Linear)]
    classes = linear[-1].out_features
    stage: int | None
    if isinstance(body, MLP | MixtureMLP):
        hidden = [next(part for part in expert_of(layer).modules() if isinstance(part, nn.Linear)) for layer in layers]
        sizes = _array(ctypes.c_long, [linear[0].in_features, *(layer.out_features for layer in hidden), classes])
        stage = functions.alma_mlp_stage(len(members), sizes, len(layers) + 1, *gates, optimizer)
        return stage
    convolutions = [convolution for layer in layers for convolution in convolutions_of(layer)]
    first = convolutions[0]
    widths = _array(ctypes.c_long, [first.in_channels, *(layer.out_channels for layer in convolutions)])
    lengths = _array(ctypes.c_int, VGG19_BLOCKS)
    image = 32, first.bias is not None, classes
    stage = functions.alma_vgg_stage(
        len(members), widths, lengths, len(lengths), *gates, *image, optimizer, torch.get_num_threads()
    )
    return stage


def float32(value: float) -> float:
    """Round to float32, so that epochs compare as in the plain engine."""
    return ctypes.c_float(value).value


def _array(kind: Any, values: Iterable[int]) -> Any:
    items = list(values)
    return (kind * len(items))(*items)


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
