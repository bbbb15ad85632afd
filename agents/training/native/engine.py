"""The native engine: the same stage as `agents.training.stage.plain_engine`, in C++, for MLPs and VGG19s on a CPU.

PyTorch spends most of the time of a small network between its operations. One call into C++ runs a whole epoch here.
The mini-batches, the formulas and the FLOPs are those of the plain engine, and the results are equal to rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from agents.networks.firefly_network import FireflyVGG19
from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.data_order import DataOrder
from agents.training.native.native_stage import NativeExamples, NativeStage, float_tensors
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Curves, Examples, plain_engine
from agents.training.step import new_optimizer, score_batch, train_mini_batch
from alma_env.metering import meter
from alma_env.metering.tally import Charges, Tally


def supports(body: nn.Module, settings: StageSettings) -> bool:
    """Return whether this engine can compute a stage in fp32.

    It computes MLPs, also those of gMoE with a tree of soft gates, and VGG19s, or a uniform mixture of either.
    """
    members = _members(body)
    images = _is_vgg19(members[0])
    return (
        all(_is_vgg19(member) if images else _is_mlp(member) for member in members)
        and all(parameter.requires_grad for parameter in body.parameters())
        and (images or settings.augmentation == "none")
        and settings.precision == "fp32"
        and settings.optimizer in ("adadelta", "sgd")
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


def _is_mlp(body: nn.Module) -> bool:
    if isinstance(body, MixtureMLP):
        return all(layer.routing == Routing() for layer in body.mixtures)
    return type(body) is MLP


def _is_vgg19(body: nn.Module) -> bool:
    return type(body) is VGG19 or (isinstance(body, FireflyVGG19) and not any(body.residuals))


def _members(body: nn.Module) -> list[nn.Module]:
    return list(body.members) if isinstance(body, UniformMixture) else [body]


def native_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    data_order: DataOrder,
    on_epoch: OnEpoch | None,
) -> Curves:
    """Compute a stage in C++; images that are not 32 × 32, and float images to augment, by the plain engine.

    Raises:
        MemoryError: the memory is short.
        RuntimeError: the C++ functions cannot be built (`library.library`).
    """
    body = predictor.body
    native_train, native_valid = (_prepared(predictor.normalize, part, body, settings) for part in (train, valid))
    if native_train is None or native_valid is None:
        return plain_engine(predictor, train, valid, settings, data_order, on_epoch)
    orders = None if data_order.epoch_is_one_batch else data_order.orders()
    crops = data_order.crop_flips() if settings.augmentation == "crop_flip" else None
    step_charges, validation_charges = _charges(predictor, train, valid, settings)
    losses: list[float] = []
    errors: list[float] = []
    best_epoch, criterion, initial = 0, math.inf, None
    with NativeStage(body, native_train, native_valid, settings) as stage:
        kept = stage.state()
        for epoch in range(0 if settings.keep_initial else 1, settings.epochs + 1):
            if epoch > 0:
                this = epoch - 1
                stage.train_epoch(None if orders is None else orders[this], None if crops is None else crops[this])
                _charge(step_charges)
            loss, error = stage.score()
            _charge(validation_charges)
            score = loss if settings.select == "val_loss" else error
            if score < criterion - settings.min_delta and math.isfinite(loss):
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
    for member, state in zip(_members(body), kept, strict=True):
        _set_state(member, state, steps)
    return Curves(
        torch.tensor(losses), torch.tensor(errors), torch.tensor(best_epoch), torch.tensor(criterion), initial
    )


def _prepared(normalize: nn.Module, part: Examples, body: nn.Module, settings: StageSettings) -> NativeExamples | None:
    """Return the examples in a form that C++ reads, or None if there is none.

    The perceptron reads normalised float32. VGG19 reads images of 32 × 32 pixels: bytes, which it normalises by a table
    of 256 values per channel, or normalised float32.
    """
    y = part.y.contiguous()
    if not _is_vgg19(_members(body)[0]):
        return NativeExamples(normalize(part.x).flatten(1).contiguous(), y)
    if part.x.dim() != 4 or part.x.shape[2:] != (32, 32):
        return None
    if part.x.dtype == torch.uint8 and isinstance(normalize, Normalize):
        bytes_of_channels = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, part.x.shape[1], 1, 1)
        return NativeExamples(part.x.contiguous(), y, normalize(bytes_of_channels).flatten(1).T.contiguous())
    if settings.augmentation != "none":
        return None
    return NativeExamples(normalize(part.x).contiguous(), y)


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
    predictor: Predictor, train: Examples, valid: Examples, settings: StageSettings
) -> tuple[Charges, Charges]:
    """Return what the plain engine charges for the steps of an epoch, and for a validation."""
    if meter.running() is None:
        return (), ()
    body = predictor.body
    optimizer, _ = new_optimizer(body, settings)
    steps, validations = Tally(None), Tally(None)
    body.train()
    for size, times in _batches(len(train), settings.batch_size):
        x = predictor.normalize(train.x[:size])
        steps.add(_times(train_mini_batch.charges(body, optimizer, x, train.y[:size], settings), times))
    body.eval()
    for size, times in _batches(len(valid), settings.validation_batch):
        x = predictor.normalize(valid.x[:size])
        validations.add(_times(score_batch.charges(body, x, valid.y[:size]), times))
    return steps.charges(), validations.charges()


def _batches(examples: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the sizes of the batches of an epoch, and how often each size occurs."""
    sizes = ((batch_size, examples // batch_size), (examples % batch_size, 1))
    return [(size, times) for size, times in sizes if size and times]


def _times(charges: Charges, times: int) -> Charges:
    return tuple((phase, times * forward, times * backward) for phase, forward, backward in charges)


def _charge(charges: Charges) -> None:
    running = meter.running()
    if running is not None:
        running.charge(charges)
