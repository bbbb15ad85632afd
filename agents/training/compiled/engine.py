"""The compiled engine: the same stage as `agents.training.stage.plain_engine`, faster for MLPs.

A small network spends its time between operations, not in them. Several steps, or several epochs of one step with
their validation and the selection of the best epoch, therefore become one compiled call
(`agents.training.compiled.program`). The mini-batches, the formulas and the FLOPs are those of the plain engine.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.mlp_vgg import MLP, Predictor
from agents.networks.stacked import Joint, Mixtures, StackedMLP, in_groups
from agents.training import distributed
from agents.training.compiled.program import (
    CALLS_PER_CHARGE,
    Program,
    Scores,
    State,
    concatenate,
    initial_state,
    layers,
    program,
)
from agents.training.data_order import DataOrder
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Curves, Examples, plain_engine

EPOCHS_PER_CALL = 5  # unrolled if an epoch is one step; a larger number takes longer to compile and gains little
STEPS_PER_CALL = 8  # most steps to unroll if an epoch has more than one


def supports(body: nn.Module, settings: StageSettings) -> bool:
    """Return whether this engine can compute a stage: MLPs in fp32, whole epochs, no augmentation."""
    stacked = body.stacked if isinstance(body, Joint | Mixtures) else body
    return (
        isinstance(stacked, MLP | StackedMLP)
        and all(parameter.requires_grad for parameter in body.parameters())
        and settings.augmentation == "none"
        and settings.precision == "fp32"
        and settings.optimizer in ("adadelta", "sgd")
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


@torch.no_grad()
def compiled_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    data_order: DataOrder,
    on_epoch: OnEpoch | None,
) -> Curves:
    """Compute a stage by compiled calls; on a GPU, by the plain engine.

    Raises:
        ValueError: there are several ranks, or the engine does not support the network or the settings.
    """
    body = predictor.body
    if next(body.parameters()).device.type != "cpu":
        with torch.enable_grad():
            return plain_engine(predictor, train, valid, settings, data_order, on_epoch)
    _require_supported(body, settings)
    x, y = predictor.normalize(train.x).flatten(1), train.y
    valid_x, valid_y = data_order.by_group(predictor.normalize(valid.x)), data_order.by_group(valid.y)
    valid_x = valid_x.flatten(valid_y.dim())
    orders = None
    if not data_order.epoch_is_one_batch:
        orders = data_order.orders()
    elif data_order.groups > 1:
        x, y = in_groups(x, data_order.groups), in_groups(y, data_order.groups)
    live = [parameter.detach() for parameter in body.parameters()]  # weight, bias, weight, …
    if isinstance(body, MLP):
        live = [parameter[None] for parameter in live]
    sizes = (*(weight.shape[2] for weight in live[::2]), live[-1].shape[1])
    members = len(live[0])
    models = body.members if isinstance(body, Mixtures) else 1 if isinstance(body, Joint) else members
    reduce = body.reduce if isinstance(body, Joint | Mixtures) else None
    functions = program(sizes, members, models, reduce, _formula(settings), *_unrolled(settings, data_order.examples))
    state = initial_state(live, sizes, models)
    initial = None
    if settings.keep_initial:
        state, initial = functions.select(state, valid_x, valid_y, 0)
    scores: list[Scores] = []
    done = 0
    while done < settings.epochs:
        if orders is None:
            calls = min((settings.epochs - done) // functions.epochs_unrolled, functions.calls)
            state, score = (
                functions.epochs(state, x, y, valid_x, valid_y, calls)
                if calls
                else functions.epoch(state, x, y, valid_x, valid_y)
            )
        else:
            state = _epoch_of_steps(functions, state, x, y, orders[..., done, :], settings.batch_size)
            state, score = functions.select(state, valid_x, valid_y, 1)
        scores.append(score)
        for _ in range(len(score.loss)):
            done += 1
            if on_epoch is not None:
                on_epoch(done)
        if settings.patience is not None and done - int(state.best_epoch.max()) >= settings.patience:
            break
    best = layers(state.best[0], sizes, members) if models == 1 else state.best
    for parameter, kept in zip(live, best, strict=True):
        parameter.copy_(kept.reshape(parameter.shape))
    return Curves(*concatenate(scores), state.best_epoch, state.criterion, initial)


def _require_supported(body: nn.Module, settings: StageSettings) -> None:
    if distributed.ranks() > 1:
        raise ValueError(
            f"engine='compiled' with {distributed.ranks()} ranks: it runs in one process only; use engine='plain'"
        )
    if not supports(body, settings):
        raise ValueError(
            f"engine='compiled' with {type(body).__name__}, augmentation={settings.augmentation!r}, "
            f"precision={settings.precision!r}: it supports MLPs in fp32 without augmentation; use engine='plain'"
        )


def _epoch_of_steps(functions: Program, state: State, x: Tensor, y: Tensor, order: Tensor, batch_size: int) -> State:
    """Run one epoch in the order ([members,] n): full mini-batches in compiled calls, then the remaining ones."""
    steps = order.shape[-1] // batch_size // functions.steps_unrolled * functions.steps_unrolled
    full = order[..., : steps * batch_size].reshape(*order.shape[:-1], -1, functions.steps_unrolled, batch_size)
    if order.dim() == 2:
        full = full.movedim(0, 2)  # (calls, steps, members, batch)
    for indices in torch.split(full, CALLS_PER_CHARGE):
        if len(indices):
            state = functions.steps(state, x, y, indices)
    for index in torch.split(order[..., steps * batch_size :], batch_size, dim=-1):
        if index.shape[-1]:
            state = functions.step(state, x.index_select(0, index.flatten()).view(*index.shape, -1), y[index])
    return state


def _unrolled(settings: StageSettings, examples: int) -> tuple[int, int]:
    """Return the epochs and the steps per call; the steps leave few mini-batches over."""
    full = examples // settings.batch_size
    steps = max(range(1, STEPS_PER_CALL + 1), key=lambda n: (full // n * n if n > STEPS_PER_CALL // 2 else 0, n))
    epochs = 1 if settings.patience is not None else EPOCHS_PER_CALL  # with patience, any epoch can be the last
    return epochs, min(steps, max(full, 1))


def _formula(settings: StageSettings) -> StageSettings:
    """Return the settings with all fields that no compiled formula uses at their defaults, to share programs."""
    used = ("optimizer", "learning_rate", "momentum", "weight_decay", "rho", "eps", "select", "min_delta")
    return StageSettings(**{name: getattr(settings, name) for name in used})
