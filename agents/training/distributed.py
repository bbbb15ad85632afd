"""Data-parallel training: several processes, each on a device of its own, train one network together.

``torchrun --nproc-per-node 2 -m agents run …`` starts them; ``torchrun`` calls a process a rank. All ranks run the same
agent on the same stream from the same seeds, hold the same weights, and take the same decisions. A mini-batch is cut
into as many equal shares as there are ranks; each computes its own, in `accumulation` parts, and PyTorch's
`DistributedDataParallel` averages the gradients. So n ranks do what one process does with n times the accumulation on
the same mini-batch, to rounding: a Switch Transformer's capacity is that of a part. Where two experts are all but
equal, rounding may send a token to the other one; from then on the two runs go their own ways. What a network draws
while it trains (dropout, jitter, hard gates) each rank draws for itself.

The validation set, and whatever growth looks at, is cut likewise, and the sums are added up. The FLOPs of the ranks are
therefore those of the one process, and the meter adds them up; adding gradients is communication, which is free
(`alma_env.flops`). The environment's scoring on the test set, which nobody is charged for, every rank does for itself.
The first rank alone writes and prints.

What a lone process does is not touched by any of this.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from agents.settings import StageSettings
from alma_env import AlmaError
from alma_env.meter import Meter

R = TypeVar("R")


class OtherRankError(AlmaError):
    """The first rank could not do what all ranks need; it says why."""


class RanksDifferError(AlmaError):
    """The ranks of a run no longer hold the same weights, or took different decisions."""


def ranks() -> int:
    """How many processes train together; 1 for a lone one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if ranks() > 1 else 0


class _Joined:
    left = False  # torchrun's ranks cannot find each other a second time: the first time's addresses are still there


@contextmanager
def joined(device: str = "auto") -> Iterator[None]:
    """Be one of the processes that ``torchrun`` has started; in a lone process, or inside another such block, nothing.

    They talk through NCCL on GPUs and through Gloo on CPUs. On GPUs each takes the one of its local rank, which then is
    what ``cuda`` means. A process that ends with an error takes the others with it: ``torchrun`` ends them.

    Args:
        device: where agents will train: ``auto``, ``cpu``, ``cuda``.

    Raises:
        RuntimeError: this process has left the others before.
        ValueError: a machine has fewer GPUs than ranks, or the device names one GPU for all.
    """
    if (
        ranks() > 1
        or not (dist.is_available() and dist.is_torchelastic_launched())
        or int(os.environ["WORLD_SIZE"]) == 1
    ):
        yield
        return
    if _Joined.left:
        raise RuntimeError(
            "parallel.joined(): this process has left the other ranks, and would wait for them without end; put one "
            "block around all that they do together"
        )
    backend = "gloo"
    if torch.cuda.is_available() and device != "cpu":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if device not in ("auto", "cuda"):
            raise ValueError(f"device={device!r} with torchrun: each rank has a GPU of its own; give 'cuda' or 'cpu'")
        if local >= gpus:
            raise ValueError(
                f"rank {local} on a machine with {gpus} GPUs: each needs one of its own; start at most {gpus} per "
                "machine (--nproc-per-node), or use device='cpu'"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    # Its functions have the group that there is when they are defined as a default, and keep it for ever; PyTorch
    # imports it with the first DistributedDataParallel.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group(backend)
    yield
    # Not after an error: the others may be waiting for a message of this rank, and its end is what tells them.
    dist.destroy_process_group()
    gc.collect()  # whatever keeps the group keeps its threads, and one that frees a tensor at the very end aborts us
    _Joined.left = True


def share(start: int, stop: int) -> slice:
    """This rank's part of the range, which is cut into one part per rank, in their order; equal if that is possible."""
    n, own = stop - start, rank()
    return slice(start + n * own // ranks(), start + n * (own + 1) // ranks())


def require_shares(settings: StageSettings, per_epoch: int, validating: int) -> None:
    """See that every mini-batch and the validation set can be cut up.

    Args:
        settings: the recipe of the stage.
        per_epoch: training examples per epoch.
        validating: examples of the validation set.

    Raises:
        ValueError: they cannot.
    """
    if ranks() == 1:
        return
    parts = ranks() * settings.accumulation
    for examples in (min(settings.batch_size, per_epoch), per_epoch % settings.batch_size):
        if examples % parts:
            raise ValueError(
                f"a mini-batch of {examples} examples with {ranks()} ranks, accumulation={settings.accumulation}: it "
                f"is computed in {parts} equal parts; choose a batch_size that is a multiple of {parts}, and set "
                "updates if an epoch is no multiple of it, or train in one process"
            )
    if validating < ranks():
        raise ValueError(
            f"{validating} examples to validate with, {ranks()} ranks: each needs at least 1; start fewer, or use "
            "larger mega-batches"
        )


class _Loss(nn.Module):
    """A network and its loss as one module: only what happens in its `forward` is seen by DistributedDataParallel."""

    def __init__(self, body: nn.Module, loss: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self._loss = loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self.body, x, y)


_replicas: WeakKeyDictionary[nn.Module, DistributedDataParallel] = WeakKeyDictionary()


@contextmanager
def replicated(
    body: nn.Module, loss: Callable[[nn.Module, Tensor, Tensor], Tensor], *, all_used: bool
) -> Iterator[None]:
    """In this block `replica_of` gives what trains `body` together with the other ranks, if there are any.

    Args:
        body: the network; its weights are made those of the first rank.
        loss: of (body, x, y), a mean over examples.
        all_used: whether every parameter has a gradient whatever the examples are. Where that cannot be promised, each
            step looks for those without.

    Raises:
        ValueError: there are several ranks, and the network has running statistics, as those of BatchNorm.
    """
    if ranks() == 1:
        yield
        return
    if any("running_" in name for name, _ in body.named_buffers()):
        raise ValueError(
            f"{type(body).__name__} with {ranks()} ranks: it has BatchNorm, whose running statistics each rank would "
            "take from its own examples; train it in one process"
        )
    _replicas[body] = DistributedDataParallel(_Loss(body, loss), find_unused_parameters=not all_used)
    try:
        yield
    finally:
        del _replicas[body]


def replica_of(body: nn.Module) -> DistributedDataParallel | None:
    """A module of (x, y) that gives the loss of `body` and averages its gradients over the ranks.

    None outside of `replicated`, and for a copy of a network: the copy is this process's own affair.
    """
    return _replicas.get(body)


def gradients_kept(replica: DistributedDataParallel | None, *, last: bool) -> AbstractContextManager[None]:
    """Around one part of a mini-batch: the gradients are sent to the other ranks with its last part, all at once."""
    return nullcontext() if replica is None or last else replica.no_sync()


def added_up(own: Tensor) -> Tensor:
    """The sum of the ranks' tensors, the same to the last bit on every rank; what lone processes give, they get back.

    Does not wait for a GPU.
    """
    if ranks() == 1:
        return own
    total = own.clone()
    dist.all_reduce(total)
    return total


def mean_of_shares(means: tuple[Tensor, ...], own: int, examples: int) -> tuple[Tensor, ...]:
    """Means over all examples, from means over this rank's `own` ones: tensors of one shape."""
    if ranks() == 1:
        return means
    return added_up(torch.stack(means) * (own / examples)).unbind()


def add_up(meter: Meter) -> None:
    """Have this rank's meter hold what all ranks have charged since the last tick. Call it outside of its block."""
    if ranks() == 1:
        return
    pending: list[Any] = [None] * ranks()
    dist.all_gather_object(pending, meter.pending())
    for other, charges in enumerate(pending):
        if other != rank():
            meter.include(charges)


def require_same(content: str, what: str) -> None:
    """See that all ranks have the same.

    Raises:
        RanksDifferError: they do not.
    """
    if ranks() == 1:
        return
    contents: list[Any] = [None] * ranks()
    dist.all_gather_object(contents, content)
    if len(set(contents)) > 1:
        raise RanksDifferError(
            f"{what} differs between ranks ({', '.join(contents)}): a learner or policy decides by what only its own "
            "rank knows, such as its share of the examples or the time; add such numbers up (agents.parallel.added_up)"
        )


def from_first(make: Callable[[], R]) -> R:
    """What `make` returns on the first rank, on every rank; it is called there alone, and must not call this itself.

    Raises:
        OtherRankError: on the others, when `make` raised; on the first rank, its own error.
    """
    if ranks() == 1:
        return make()
    told: list[Any] = [None, None]
    failed: Exception | None = None
    if rank() == 0:
        try:
            told[0] = make()
        except Exception as error:
            failed, told[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(told)
    if failed is not None:
        raise failed
    if told[1] is not None:
        raise OtherRankError(f"the first rank failed: {told[1]}")
    made: R = told[0]
    return made
