"""The fast engine for MLPs, one or several at once: the same stage as `agents.stage`, compiled.

A small network spends its time between operations, not in them. So the whole stage lives in a few flat vectors, the
optimizer is written as arithmetic on them, and `torch.compile` turns several steps, or several epochs of one step with
their validation and the choice of the best epoch, into one call. The mini-batches, the formulas and the FLOPs are
those of the plain loop; results differ by rounding alone, and are the same in every process on one machine.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents import parallel
from agents.networks import MLP
from agents.stacked import Joint, Mixtures, Reduce, StackedMLP, for_members, in_groups, linear
from alma_env import meter

if TYPE_CHECKING:
    from agents.stage import Engine, OnEpoch, StageSettings

EPOCHS_PER_CALL = 5  # unrolled, where an epoch is one step; more makes compiling longer for little
STEPS_PER_CALL = 8  # unrolled at most, where an epoch has more steps
CALLS_PER_CHARGE = 4  # compiled calls that the meter charges as one, since a charge costs as much as the call's Python

# Compiling one network takes 20 to 40 s of a 2.5 GHz Cascade Lake core with an empty disk cache (5 s with a full one),
# and saves 1.2 to 2 ms per step there; on a Zen 5 core it takes 3 to 15 s and saves 0.4 ms. Both break even below this.
COMPILE_FROM_STEPS = 40_000

Sizes = tuple[int, ...]  # inputs, hidden units, ..., classes


class State(NamedTuple):
    """A stage in progress. `theta` and the optimizer's `first` and `second` are flat.

    They hold layer after layer, each as one matrix of all members.
    """

    theta: Tensor
    first: Tensor
    second: Tensor
    best: tuple[Tensor, ...]  # as `theta`; where there are several answers, each with a best epoch, as their layers
    criterion: Tensor  # of the best epoch, (answers,): one per member, or per mixture of members
    best_epoch: Tensor  # int64, as `criterion`
    epoch: Tensor  # epochs done, int64, ()


class Scores(NamedTuple):
    """Mean validation losses and validation errors, one per epoch: (epochs, answers) each."""

    loss: Tensor
    error: Tensor


def supports(body: nn.Module, settings: StageSettings) -> bool:
    """Whether this engine can run such a stage: MLPs in fp32, whole epochs, without augmentation."""
    stacked = body.stacked if isinstance(body, Joint | Mixtures) else body
    return (
        isinstance(stacked, MLP | StackedMLP)
        and all(parameter.requires_grad for parameter in body.parameters())
        and settings.augmentation == "none"
        and settings.precision == "fp32"
        and settings.optimizer in ("adadelta", "sgd")
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


def choose_engine(
    engine: str,
    body: nn.Module,
    settings: StageSettings,
    *,
    full_steps: int,
    device: torch.device | str = "cpu",
) -> Engine:
    """The engine of a run that makes about `full_steps` mini-batch steps; `auto` compiles where that pays.

    It depends on the arguments and on there being a C++ compiler, never on what was compiled before: a run that is
    continued must choose as it did at first.

    Raises:
        ValueError: the engine is unknown, or `compiled` was asked for and cannot run such a stage.
    """
    alone = parallel.ranks() == 1
    possible = alone and supports(body, settings) and torch.device(device).type == "cpu" and _has_compiler()
    if engine == "auto":
        return "compiled" if possible and full_steps >= COMPILE_FROM_STEPS else "plain"
    if engine == "compiled":
        if not possible:
            raise ValueError(
                "engine='compiled': needs an MLP in fp32 without augmentation, on one CPU process, and a C++ compiler; "
                "use engine='auto' or 'plain'"
            )
        return "compiled"
    if engine == "plain":
        return "plain"
    raise ValueError(f"engine={engine!r}: choose one of auto, plain, compiled")


def run_stage(
    body: nn.Module,
    settings: StageSettings,
    train: tuple[Tensor, Tensor],
    valid: tuple[Tensor, Tensor],
    orders: Tensor | None,
    on_epoch: OnEpoch | None = None,
) -> tuple[Scores, State, Scores | None]:
    """Train `body` in place on normalised (inputs, labels); the scores of its epochs, the end, and those from before.

    `orders` is (epochs, n), or (members, epochs, n); None where an epoch is a step. Networks with data of their own
    have a validation part (groups, n, ...), and their training examples one set after another.
    """
    x, y, valid_x, valid_y = train[0].flatten(1), train[1], valid[0].flatten(valid[1].dim()), valid[1]
    groups = 1 if valid_y.dim() == 1 else len(valid_y)
    examples = len(y) // groups
    if orders is None and groups > 1:
        x, y = in_groups(x, groups), in_groups(y, groups)
    reduce = body.reduce if isinstance(body, Joint | Mixtures) else None
    live = [parameter.detach() for parameter in body.parameters()]  # weight, bias, weight, …
    if isinstance(body, MLP):
        live = [parameter[None] for parameter in live]
    sizes = (*(weight.shape[2] for weight in live[::2]), live[-1].shape[1])
    members = len(live[0])
    answers = body.members if isinstance(body, Mixtures) else 1 if isinstance(body, Joint) else members
    program = _program(sizes, members, answers, reduce, _formula(settings), *_unrolled(settings, examples))
    scores: list[Scores] = []
    with torch.no_grad():
        theta = torch.cat([_stored(parameter).flatten() for parameter in live])
        state = _initial_state(theta, _parts(theta, sizes, members, answers), answers)
        initial = None
        if settings.keep_initial:
            state, initial = program.select(state, valid_x, valid_y, 0)
        done = 0
        while done < settings.epochs:
            if orders is None:
                calls = min((settings.epochs - done) // program.epochs_unrolled, program.calls)
                state, score = (
                    program.epochs(state, x, y, valid_x, valid_y, calls)
                    if calls
                    else program.epoch(state, x, y, valid_x, valid_y)
                )
            else:
                state = _many_steps(program, state, x, y, orders[..., done, :], settings.batch_size)
                state, score = program.select(state, valid_x, valid_y, 1)
            scores.append(score)
            for _ in range(len(score.loss)):
                done += 1
                if on_epoch is not None:
                    on_epoch(done)
            if settings.patience is not None and done - int(state.best_epoch.max()) >= settings.patience:
                break
        best = _layers(state.best[0], sizes, members) if answers == 1 else state.best
        for parameter, kept in zip(live, best, strict=True):
            parameter.copy_(kept.reshape(parameter.shape))
    return _joined(scores), state, initial


class _Program(NamedTuple):
    """The functions of a stage, each counted once per shape: the first two compiled, the others as they are."""

    epochs: Callable[..., tuple[State, Scores]]  # `calls` times `epochs_unrolled` epochs of one step
    steps: Callable[..., State]  # indices (calls, steps_unrolled, [members,] batch): a step for each mini-batch
    epoch: Callable[..., tuple[State, Scores]]
    step: Callable[..., State]
    select: Callable[..., tuple[State, Scores]]
    epochs_unrolled: int
    steps_unrolled: int
    calls: int


@functools.cache
def _program(
    sizes: Sizes,
    members: int,
    answers: int,
    reduce: Reduce | None,
    settings: StageSettings,
    epochs_unrolled: int,
    steps_unrolled: int,
) -> _Program:
    update = _adadelta if settings.optimizer == "adadelta" else _sgd

    def answer(theta: Tensor, x: Tensor) -> Tensor:  # (answers, n, classes)
        logits = _logits(_layers(theta, sizes, members), x)
        if reduce is None:
            return logits
        logits = in_groups(logits, answers)
        return logits.mean(1) if reduce == "mean" else logits.sum(1)

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        # The optimizers work number by number, so the sum trains each member as its own loss would.
        return _cross_entropy(answer(theta, x), y).sum()

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
        loss = _cross_entropy(logits, y)
        error = (logits.argmax(2) != for_members(y, answers)).float().mean(1)
        criterion = loss if settings.select == "val_loss" else error
        better = (criterion < state.criterion - settings.min_delta) & loss.isfinite()
        epoch = state.epoch + epochs
        state = state._replace(
            best=tuple(
                torch.where(better.view(-1, *[1] * (old.dim() - 1)), new, old)
                for new, old in zip(_parts(state.theta, sizes, members, answers), state.best, strict=True)
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
        return state, _joined(scores)

    count = meter.count_once
    return _Program(
        count(_repeated(epochs), _repeated(_compile(epochs))),
        count(_gathering(steps), _gathering(_compile(steps))),
        count(epoch),
        count(step),
        count(select),
        epochs_unrolled,
        steps_unrolled,
        1 if epochs_unrolled == 1 else CALLS_PER_CHARGE,
    )


def _repeated(epochs: Callable[..., tuple[State, Scores]]) -> Callable[..., tuple[State, Scores]]:
    def repeated(
        state: State, x: Tensor, y: Tensor, valid_x: Tensor, valid_y: Tensor, calls: int
    ) -> tuple[State, Scores]:
        scores = []
        for _ in range(calls):
            state, score = epochs(state, x, y, valid_x, valid_y)
            scores.append(score)
        return state, _joined(scores)

    return repeated


def _gathering(steps: Callable[..., State]) -> Callable[..., State]:
    def gathering(state: State, x: Tensor, y: Tensor, indices: Tensor) -> State:
        for index in indices:
            batches = x.index_select(0, index.flatten()).view(*index.shape, -1)  # faster than brackets on a CPU
            state = steps(state, batches, y[index])
        return state

    return gathering


def _joined(scores: list[Scores]) -> Scores:
    return Scores(*(torch.cat(parts) for parts in zip(*scores, strict=True)))


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # The C++ wrapper halves what a call costs beside its arithmetic. Nothing is tuned by timing: results would vary.
    # Each function keeps its own compiled shapes, so that many widths and lengths in one process are no trouble.
    compile: Callable[..., Callable[..., Any]] = torch.compile  # its stubs lag behind its keywords
    return compile(function, fullgraph=True, dynamic=False, options={"cpp_wrapper": True}, isolate_recompiles=True)


def _logits(weights_and_biases: list[Tensor], x: Tensor) -> Tensor:
    """Of x (n, inputs), the same for all members, or (groups, n, inputs): (members, n, classes)."""
    members = len(weights_and_biases[0])
    for weight, bias in zip(weights_and_biases[::2], weights_and_biases[1::2], strict=True):
        x = F.linear(x, weight[0], bias[0]) if members == 1 else linear(x, weight, bias)
        if bias is not weights_and_biases[-1]:
            x = F.relu(x)
    return x.expand(members, *x.shape[-2:])


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean over the examples, (members,), of logits (members, n, classes) and y (n,) or (groups, n)."""
    if len(logits) == 1:
        return F.cross_entropy(logits.flatten(0, 1), y).view(1)
    return F.cross_entropy(logits.transpose(1, 2), for_members(y, len(logits)), reduction="none").mean(1)


def _layers(theta: Tensor, sizes: Sizes, members: int) -> list[Tensor]:
    """Views of the parameters: weight (members, out, in), bias (members, out), layer after layer."""
    shapes = _shapes(sizes, members)
    parts = torch.split(theta, [math.prod(shape) for shape in shapes])
    views = []
    for part, shape in zip(parts, shapes, strict=True):
        if _inputs_first(shape):
            part = part.view(shape[2], *shape[:2]).permute(1, 2, 0)
        views.append(part.view(shape))
    return views


def _inputs_first(shape: tuple[int, ...]) -> bool:
    """Whether a weight (members, out, in) is stored as (in, members, out), which MKL multiplies up to twice as fast.

    Of narrow layers the gradients would lose more than the forward pass wins.
    """
    return len(shape) == 3 and shape[1] >= 16


def _stored(parameter: Tensor) -> Tensor:
    return parameter.permute(2, 0, 1) if _inputs_first(tuple(parameter.shape)) else parameter


def _parts(theta: Tensor, sizes: Sizes, members: int, answers: int) -> tuple[Tensor, ...]:
    """What is kept or not as a whole: all parameters, or those of each layer by answer, (answers, members, ...)."""
    if answers == 1:
        return (theta,)
    return tuple(in_groups(part, answers) for part in _layers(theta, sizes, members))


def _shapes(sizes: Sizes, members: int) -> list[tuple[int, ...]]:
    return [
        shape
        for inputs, outputs in itertools.pairwise(sizes)
        for shape in ((members, outputs, inputs), (members, outputs))
    ]


def _adadelta(state: State, gradient: Tensor, settings: StageSettings) -> tuple[Tensor, Tensor, Tensor]:
    rho, eps = settings.rho, settings.eps
    squares = rho * state.first + (1 - rho) * gradient**2
    delta = (state.second + eps).sqrt() / (squares + eps).sqrt() * gradient
    return state.theta - settings.learning_rate * delta, squares, rho * state.second + (1 - rho) * delta**2


def _sgd(state: State, gradient: Tensor, settings: StageSettings) -> tuple[Tensor, Tensor, Tensor]:
    velocity = settings.momentum * state.first + gradient
    return state.theta - settings.learning_rate * velocity, velocity, state.second


def _initial_state(theta: Tensor, parts: tuple[Tensor, ...], answers: int) -> State:
    return State(
        theta,
        torch.zeros_like(theta),
        torch.zeros_like(theta),
        tuple(part.clone() for part in parts),
        torch.full((answers,), torch.inf),
        torch.zeros(answers, dtype=torch.int64),
        torch.zeros((), dtype=torch.int64),
    )


def _many_steps(program: _Program, state: State, x: Tensor, y: Tensor, order: Tensor, batch_size: int) -> State:
    """One epoch of several steps, in the order ([members,] n): full ones compiled, several per call; then the rest."""
    steps = order.shape[-1] // batch_size // program.steps_unrolled * program.steps_unrolled
    full = order[..., : steps * batch_size].reshape(*order.shape[:-1], -1, program.steps_unrolled, batch_size)
    if order.dim() == 2:
        full = full.movedim(0, 2)  # (calls, steps, members, batch)
    for indices in torch.split(full, CALLS_PER_CHARGE):
        if len(indices):
            state = program.steps(state, x, y, indices)
    for index in torch.split(order[..., steps * batch_size :], batch_size, dim=-1):
        if index.shape[-1]:
            state = program.step(state, x.index_select(0, index.flatten()).view(*index.shape, -1), y[index])
    return state


def _unrolled(settings: StageSettings, examples: int) -> tuple[int, int]:
    """Epochs and steps per call: few left over, and an early stop can stop after every epoch."""
    full = examples // settings.batch_size
    steps = max(range(1, STEPS_PER_CALL + 1), key=lambda n: (full // n * n if n > STEPS_PER_CALL // 2 else 0, n))
    return 1 if settings.patience is not None else EPOCHS_PER_CALL, min(steps, max(full, 1))


def _formula(settings: StageSettings) -> StageSettings:
    """The settings with all that does not enter a compiled formula at its default, so that programs are shared."""
    kept = ("optimizer", "learning_rate", "momentum", "weight_decay", "rho", "eps", "select", "min_delta")
    return type(settings)(**{name: getattr(settings, name) for name in kept})


def _has_compiler() -> bool:
    default = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", default)) is not None
