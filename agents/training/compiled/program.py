"""The compiled functions of a stage: several steps, or several epochs, on parameters in one flat vector.

The optimizer is arithmetic on flat vectors, and `torch.compile` turns several steps into one call. The formulas are
those of `agents.training.step`. The results differ only by rounding, and are the same in every process on one machine.

Three counts occur in the shapes. `members` networks are computed side by side. `models` of them have their own answer
and their own best epoch: a model is one member, or one mixture of members. `groups` data sets serve the members.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from agents.networks.stacked import Reduce, for_members, in_groups, linear_for_members
from agents.training.settings import StageSettings
from alma_env.metering import meter
from alma_env.metering.function_cost import count_once

CALLS_PER_CHARGE = 4  # compiled calls per charge to the meter; a charge takes as long as the Python code of a call

Sizes = tuple[int, ...]  # inputs, hidden units, ..., classes


class State(NamedTuple):
    """A stage in progress.

    `theta` and the optimizer's `first` and `second` are flat: layer after layer, each layer one matrix of all members.
    """

    theta: Tensor
    first: Tensor
    second: Tensor
    best: tuple[Tensor, ...]  # for one model as `theta`, for several one tensor per weight and bias
    criterion: Tensor  # of the best epoch, (models,)
    best_epoch: Tensor  # int64, (models,)
    epoch: Tensor  # epochs done, int64, ()


class Scores(NamedTuple):
    """Mean validation losses and validation errors, each (epochs, models)."""

    loss: Tensor
    error: Tensor


class Program(NamedTuple):
    """The functions of a stage, each metered once per shape. `epochs` and `steps` are compiled, the others are not."""

    epochs: Callable[..., tuple[State, Scores]]  # `calls` times `epochs_unrolled` epochs of one step
    steps: Callable[..., State]  # indices (calls, steps_unrolled, [members,] batch): one step per mini-batch
    epoch: Callable[..., tuple[State, Scores]]
    step: Callable[..., State]
    select: Callable[..., tuple[State, Scores]]
    epochs_unrolled: int
    steps_unrolled: int
    calls: int


@functools.cache
def program(
    sizes: Sizes,
    members: int,
    models: int,
    reduce: Reduce | None,
    settings: StageSettings,
    epochs_unrolled: int,
    steps_unrolled: int,
) -> Program:
    """Return the functions of a stage, compiled at their first call.

    `reduce` is how a mixture combines the logits of its members; None if each model is one member. `epochs_unrolled`
    epochs of one step, or `steps_unrolled` steps, are one compiled call.
    """
    update = _adadelta if settings.optimizer == "adadelta" else _sgd

    def answer(theta: Tensor, x: Tensor) -> Tensor:  # (models, n, classes)
        logits = _members_logits(layers(theta, sizes, members), x)
        if reduce is None:
            return logits
        logits = in_groups(logits, models)
        return logits.mean(1) if reduce == "mean" else logits.sum(1)

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        # The optimizers are elementwise, so the gradient of the sum trains each member on its own loss.
        return _mean_cross_entropy(answer(theta, x), y).sum()

    def step(state: State, x: Tensor, y: Tensor) -> State:
        gradient = torch.func.grad(loss)(state.theta, x, y)
        if settings.weight_decay:
            gradient = gradient + settings.weight_decay * state.theta
        theta, first, second = update(state, gradient, settings)
        return state._replace(theta=theta, first=first, second=second)

    def steps(state: State, x: Tensor, y: Tensor) -> State:  # (steps, [members,] batch, inputs)
        for batch_x, batch_y in zip(x, y, strict=True):
            state = step(state, batch_x, batch_y)
        return state

    def select(state: State, x: Tensor, y: Tensor, epochs: int) -> tuple[State, Scores]:
        with meter.phase("validation"):
            logits = answer(state.theta, x)
        loss = _mean_cross_entropy(logits, y)
        error = (logits.argmax(2) != for_members(y, models)).float().mean(1)
        criterion = loss if settings.select == "val_loss" else error
        better = (criterion < state.criterion - settings.min_delta) & loss.isfinite()
        epoch = state.epoch + epochs
        state = state._replace(
            best=tuple(
                torch.where(better.view(-1, *[1] * (old.dim() - 1)), new, old)
                for new, old in zip(_by_model(state.theta, sizes, members, models), state.best, strict=True)
            ),
            criterion=torch.where(better, criterion, state.criterion),
            best_epoch=torch.where(better, epoch, state.best_epoch),
            epoch=epoch,
        )
        return state, Scores(loss[None], error[None])

    def epoch(state: State, x: Tensor, y: Tensor, valid_x: Tensor, valid_y: Tensor) -> tuple[State, Scores]:
        return select(step(state, x, y), valid_x, valid_y, 1)

    def epochs(state: State, x: Tensor, y: Tensor, valid_x: Tensor, valid_y: Tensor) -> tuple[State, Scores]:
        scores = []
        for _ in range(epochs_unrolled):
            state, score = epoch(state, x, y, valid_x, valid_y)
            scores.append(score)
        return state, concatenate(scores)

    return Program(
        count_once(_repeated(epochs), _repeated(_compile(epochs))),
        count_once(_gathering(steps), _gathering(_compile(steps))),
        count_once(epoch),
        count_once(step),
        count_once(select),
        epochs_unrolled,
        steps_unrolled,
        1 if epochs_unrolled == 1 else CALLS_PER_CHARGE,
    )


def _repeated(epochs: Callable[..., tuple[State, Scores]]) -> Callable[..., tuple[State, Scores]]:
    """Return a function that calls `epochs` several times."""

    def repeated(
        state: State, x: Tensor, y: Tensor, valid_x: Tensor, valid_y: Tensor, calls: int
    ) -> tuple[State, Scores]:
        scores = []
        for _ in range(calls):
            state, score = epochs(state, x, y, valid_x, valid_y)
            scores.append(score)
        return state, concatenate(scores)

    return repeated


def _gathering(steps: Callable[..., State]) -> Callable[..., State]:
    """Return a function that collects mini-batches by their indices and calls `steps` on them."""

    def gathering(state: State, x: Tensor, y: Tensor, indices: Tensor) -> State:
        for index in indices:
            batches = x.index_select(0, index.flatten()).view(*index.shape, -1)  # faster than x[index] on a CPU
            state = steps(state, batches, y[index])
        return state

    return gathering


def concatenate(scores: list[Scores]) -> Scores:
    """Return the scores of consecutive epochs as one."""
    return Scores(*(torch.cat(parts) for parts in zip(*scores, strict=True)))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # The C++ wrapper halves the overhead of a call. Autotuning stays off: its choices, and so the results, would vary.
    # Each function keeps its own compiled shapes, so that one process can use many widths and lengths.
    compile: Callable[..., Callable[..., Any]] = torch.compile  # its type stubs lack some keywords
    return compile(function, fullgraph=True, dynamic=False, options={"cpp_wrapper": True}, isolate_recompiles=True)


def _members_logits(weights_and_biases: list[Tensor], x: Tensor) -> Tensor:
    """Return the logits (members, n, classes) of x (n, inputs), the same for all members, or (groups, n, inputs)."""
    members = len(weights_and_biases[0])
    for weight, bias in zip(weights_and_biases[::2], weights_and_biases[1::2], strict=True):
        x = F.linear(x, weight[0], bias[0]) if members == 1 else linear_for_members(x, weight, bias)
        if bias is not weights_and_biases[-1]:
            x = F.relu(x)
    return x.expand(members, *x.shape[-2:])


def _mean_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the mean over the examples, (models,), of logits (models, n, classes) and y (n,) or (groups, n)."""
    if len(logits) == 1:
        return F.cross_entropy(logits.flatten(0, 1), y).view(1)
    return F.cross_entropy(logits.transpose(1, 2), for_members(y, len(logits)), reduction="none").mean(1)


def initial_state(weights_and_biases: list[Tensor], sizes: Sizes, models: int) -> State:
    """Return the state before the first epoch, with copies of the parameters (members, ...)."""
    theta = torch.cat([_stored(parameter).flatten() for parameter in weights_and_biases])
    return State(
        theta,
        torch.zeros_like(theta),
        torch.zeros_like(theta),
        tuple(part.clone() for part in _by_model(theta, sizes, len(weights_and_biases[0]), models)),
        torch.full((models,), torch.inf),
        torch.zeros(models, dtype=torch.int64),
        torch.zeros((), dtype=torch.int64),
    )


def layers(theta: Tensor, sizes: Sizes, members: int) -> list[Tensor]:
    """Return views of the parameters: weight (members, out, in), bias (members, out), layer after layer."""
    shapes: list[tuple[int, ...]] = [
        shape
        for inputs, outputs in itertools.pairwise(sizes)
        for shape in ((members, outputs, inputs), (members, outputs))
    ]
    parts = torch.split(theta, [math.prod(shape) for shape in shapes])
    views = []
    for part, shape in zip(parts, shapes, strict=True):
        if _inputs_first(shape):
            part = part.view(shape[2], *shape[:2]).permute(1, 2, 0)
        views.append(part.view(shape))
    return views


def _stored(parameter: Tensor) -> Tensor:
    """Return a parameter (members, ...) in its storage order."""
    return parameter.permute(2, 0, 1) if _inputs_first(tuple(parameter.shape)) else parameter


def _inputs_first(shape: tuple[int, ...]) -> bool:
    """Whether a weight (members, out, in) is stored as (in, members, out), which MKL multiplies up to twice as fast.

    For narrow layers the gradients would lose more time than the forward pass gains.
    """
    return len(shape) == 3 and shape[1] >= 16


def _by_model(theta: Tensor, sizes: Sizes, members: int, models: int) -> tuple[Tensor, ...]:
    """Return what `State.best` holds: all parameters of one model, or (models, members per model, ...) per layer."""
    if models == 1:
        return (theta,)
    return tuple(in_groups(part, models) for part in layers(theta, sizes, members))


def _adadelta(state: State, gradient: Tensor, settings: StageSettings) -> tuple[Tensor, Tensor, Tensor]:
    rho, eps = settings.rho, settings.eps
    squares = rho * state.first + (1 - rho) * gradient**2
    delta = (state.second + eps).sqrt() / (squares + eps).sqrt() * gradient
    return state.theta - settings.learning_rate * delta, squares, rho * state.second + (1 - rho) * delta**2


def _sgd(state: State, gradient: Tensor, settings: StageSettings) -> tuple[Tensor, Tensor, Tensor]:
    velocity = settings.momentum * state.first + gradient
    return state.theta - settings.learning_rate * velocity, velocity, state.second
