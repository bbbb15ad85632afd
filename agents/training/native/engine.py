"""The native engine: the same stage as `agents.training.stage.plain_engine`, in C++, for MLPs and VGG19s on a CPU.

PyTorch spends most of the time of a small network between its operations. One call into C++ runs a whole epoch here.
The mini-batches, the formulas and the FLOPs are those of the plain engine, and the results are equal to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from agents.networks.mlp_vgg import Normalize, Predictor
from agents.training.data_order import DataOrder
from agents.training.native.native_stage import NativeExamples, NativeStage, float32
from agents.training.native.supported import convolutions_of, float_tensors, layers_of, members_of, supports
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Curves, Examples, plain_engine
from agents.training.step import gradients, score_batch
from alma_env.metering import meter
from alma_env.metering.function_cost import CountedOnce
from alma_env.metering.tally import Charges, Tally
from alma_env.metering.uncounted import uncounted
from alma_env.scoring.normalised import is_plain


def native_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    order: DataOrder,
    on_epoch: OnEpoch | None,
) -> Curves:
    """Compute a stage in C++, or by the plain engine if C++ cannot: a network can change after the engine was chosen.

    Raises:
        MemoryError: the memory is short.
        RuntimeError: the C++ functions cannot be built (`library.library`).
    """
    body, settings = predictor.body, order.settings
    own = not is_plain(predictor.normalize)
    if not supports(body, settings) or (own and settings.augmentation != "none"):
        return plain_engine(predictor, train, valid, order, on_epoch)
    if own:  # in the sight of the meter, and once, because it may cost FLOPs and draw random numbers
        train, valid = (Examples(predictor.normalize(part.x), part.y) for part in (train, valid))
        predictor = Predictor(nn.Identity(), body)
    with uncounted():
        native_valid, native_train = (_prepared(predictor.normalize, part, body, settings) for part in (valid, train))
    if native_train is None or native_valid is None:
        return plain_engine(predictor, train, valid, order, on_epoch)
    body.train()
    step_charges = _charges(gradients, predictor, train, settings.batch_size, settings)
    body.eval()
    validation_charges = _charges(score_batch, predictor, valid, settings.validation_batch)
    with uncounted():
        orders = None if order.epoch_is_one_batch else order.orders()
        crops = order.crop_flips() if settings.augmentation == "crop_flip" else None
        stage = NativeStage(body, native_train, native_valid, settings)
    min_delta = float32(settings.min_delta)
    losses: list[float] = []
    errors: list[float] = []
    best_epoch, criterion, initial = 0, math.inf, None
    with stage, _charged(step_charges) as trained, _charged(validation_charges) as scored:
        kept = stage.state()
        for epoch in range(0 if settings.keep_initial else 1, settings.epochs + 1):
            if epoch > 0:
                this = epoch - 1
                stage.train_epoch(None if orders is None else orders[this], None if crops is None else crops[this])
                trained.append(epoch)
            loss, error = stage.score()
            scored.append(epoch)
            score = loss if settings.select == "val_loss" else error
            if score < float32(criterion - min_delta) and math.isfinite(loss):
                best_epoch, criterion, kept = epoch, score, stage.state()
            if epoch == 0:
                initial = (torch.tensor(loss), torch.tensor(error))
                continue
            losses.append(loss)
            errors.append(error)
            if on_epoch is not None:
                on_epoch(epoch)
            if settings.patience is not None and epoch - best_epoch >= settings.patience:
                break
    steps = best_epoch * -(-len(train) // settings.batch_size)
    with uncounted([*body.parameters(), *body.buffers()], [train.x, train.y, valid.x, valid.y]):
        for member, state in zip(members_of(body), kept, strict=True):
            _set_state(member, state, steps)
    return Curves(
        torch.tensor(losses), torch.tensor(errors), torch.tensor(best_epoch), torch.tensor(criterion), initial
    )


def _prepared(normalize: nn.Module, part: Examples, body: nn.Module, settings: StageSettings) -> NativeExamples | None:
    """Return the examples in a form that C++ reads, or None if there is none.

    The perceptron reads normalised float32. VGG19 reads images of 32 × 32 pixels: bytes, which it normalises by a table
    of 256 values per channel, or normalised float32. C++ checks neither sizes nor labels. So the plain engine gets all
    examples that do not fit the network, and raises its error.
    """
    member = members_of(body)[0]
    linear = [layer for layer in member.modules() if isinstance(layer, nn.Linear)]
    classes = linear[-1].out_features
    if part.y.dim() != 1 or part.y.is_floating_point() or part.y.min() < 0 or part.y.max() >= classes:
        return None
    y = part.y.long().contiguous()
    convolutions = [convolution for layer in layers_of(member) for convolution in convolutions_of(layer)]
    if not convolutions:
        x = normalize(part.x)
        return _if_float32(x.flatten(1) if x.dim() > 1 else x, y, linear[0].in_features)
    images = (convolutions[0].in_channels, 32, 32)
    if part.x.dtype == torch.uint8 and isinstance(normalize, Normalize) and part.x.shape == (len(y), *images):
        bytes_of_channels = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, images[0], 1, 1)
        table = normalize(bytes_of_channels).flatten(1).T.contiguous()
        return NativeExamples(part.x.contiguous(), y, table) if len(table) == images[0] else None
    return _if_float32(normalize(part.x), y, *images) if settings.augmentation == "none" else None


def _if_float32(x: Tensor, y: Tensor, *shape: int) -> NativeExamples | None:
    # Inputs that need a gradient come from a normalisation that trains, too, which is an error in the plain engine.
    fits = x.dtype == torch.float32 and x.shape == (len(y), *shape) and not x.requires_grad
    return NativeExamples(x.contiguous(), y) if fits else None


def _set_state(member: nn.Module, state: Tensor, steps: int) -> None:
    """Set parameters and buffers; `steps` is the number of training steps, which BatchNorm counts."""
    with torch.no_grad():
        tensors = float_tensors(member)
        for tensor, values in zip(tensors, torch.split(state, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(values.view(tensor.shape))
        for buffer in member.buffers():
            if not buffer.is_floating_point():
                buffer += steps


def _charges(
    function: CountedOnce[..., Any], predictor: Predictor, part: Examples, batch_size: int, *rest: object
) -> Charges:
    """Return what the plain engine charges for calls of `function` on all mini-batches of a part of the data."""
    tally = Tally(None)
    if meter.running() is not None:
        for size, times in _batches(len(part), batch_size):
            with uncounted():
                x = predictor.normalize(part.x[:size])
            tally.add(_times(function.charges(predictor.body, x, part.y[:size], *rest), times))
    return tally.charges()


def _batches(examples: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the sizes of the batches of an epoch, and how often each size occurs."""
    sizes = ((batch_size, examples // batch_size), (examples % batch_size, 1))
    return [(size, times) for size, times in sizes if size and times]


def _times(charges: Charges, times: int) -> Charges:
    return tuple((phase, times * forward, times * backward) for phase, forward, backward in charges)


@contextmanager
def _charged(charges: Charges) -> Iterator[list[int]]:
    """Charge what each epoch in the yielded list costs at the end of the block, also after an error."""
    epochs: list[int] = []
    try:
        yield epochs
    finally:
        if (running := meter.running()) is not None:
            running.charge(_times(charges, len(epochs)))
