"""Data-parallel training: several processes, each on its own device, train one network together.

``torchrun --nproc-per-node 2 -m agents run …`` starts the processes, which it calls ranks. All ranks run the same agent
on the same stream from the same seeds, hold the same weights, and take the same decisions. Each rank computes an equal
share of every mini-batch, in `accumulation` parts, and PyTorch's `DistributedDataParallel` averages the gradients.

n ranks therefore compute what one process computes with n times the accumulation on the same mini-batch, to rounding.
The capacity of a Switch Transformer is that of one part. If two experts have almost equal probabilities, rounding can
send a token to the other expert; the two runs differ from then on. Each rank draws its own dropout, jitter and hard
gates.

The validation set, and the data of a growth step, are divided in the same way and the results are summed. The meter
sums the FLOPs of all ranks. They equal those of one process, unless a rank's own draws change the routes of tokens or
the experts of examples. Summing gradients is communication, which is free (`alma_env.metering.costs`). Every rank
scores the test set itself; scoring is not charged. Only the first rank writes and prints.

With a single process, all functions here do nothing or return their input.
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

from agents.training.data_order import DataOrder
from agents.training.processes import SingleProcess
from alma_env import AlmaError
from alma_env.metering.meter import Meter

R = TypeVar("R")


class OtherRankError(AlmaError):
    """The first rank failed at something that all ranks need; its own error has the cause."""


class RanksDifferError(AlmaError):
    """The ranks of a run have different weights, or took different decisions."""


def ranks() -> int:
    """Return the number of processes that train together; 1 for a single process."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if ranks() > 1 else 0


class _ProcessGroup:
    ended = False  # ranks cannot find each other a second time: the store still has the addresses of the first time


@contextmanager
def process_group(device: str = "auto") -> Iterator[None]:
    """Connect this process to the other ranks of ``torchrun`` for the duration of the block.

    The block does nothing in a single process and inside another such block. Ranks communicate through NCCL on GPUs and
    through Gloo on CPUs. On GPUs, the device ``cuda`` of each rank is the GPU with its local rank. If a process ends
    with an error, ``torchrun`` ends the others. `device` is where agents train: ``auto``, ``cpu``, ``cuda``.

    Raises:
        RuntimeError: this process has already been in such a block.
        ValueError: a machine has fewer GPUs than ranks, or the device is one GPU for all ranks.
    """
    if (
        ranks() > 1
        or not (dist.is_available() and dist.is_torchelastic_launched())
        or int(os.environ["WORLD_SIZE"]) == 1
    ):
        yield
        return
    if _ProcessGroup.ended:
        raise RuntimeError(
            "process_group(): this process has already left the other ranks and would wait for them forever; use one "
            "block around everything that the ranks do together"
        )
    backend = "gloo"
    if torch.cuda.is_available() and device != "cpu":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if device not in ("auto", "cuda"):
            raise ValueError(f"device={device!r} with torchrun: each rank needs its own GPU; use 'cuda' or 'cpu'")
        if local >= gpus:
            raise ValueError(
                f"rank {local} on a machine with {gpus} GPUs: each rank needs its own GPU; start at most {gpus} ranks "
                "per machine (--nproc-per-node), or use device='cpu'"
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    # The functions of this module bind the current process group as a default argument when the module is imported. The
    # first DistributedDataParallel would import it too late: a reference to our group would then stay forever.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group(backend)
    yield
    # Not after an error: other ranks may wait for a message of this rank, and only the end of its process stops them.
    dist.destroy_process_group()
    gc.collect()  # frees the group and its threads; a thread that frees a tensor at interpreter exit aborts the process
    _ProcessGroup.ended = True


def share(start: int, stop: int) -> slice:
    """Return this rank's share of a range: one share per rank, in the order of the ranks, equal if possible."""
    n, own = stop - start, rank()
    return slice(start + n * own // ranks(), start + n * (own + 1) // ranks())


Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]  # of (body, x, y)


class _Loss(nn.Module):
    """A network and its loss as one module, since DistributedDataParallel only handles the `forward` of a module."""

    def __init__(self, body: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.body = body
        self._loss = loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self._loss(self.body, x, y)


_replicas: WeakKeyDictionary[nn.Module, DistributedDataParallel] = WeakKeyDictionary()


def replica_of(body: nn.Module) -> DistributedDataParallel | None:
    """Return the module of (x, y) that gives the loss of `body` and averages its gradients over the ranks.

    The result is None outside of `Ranks.replicas`, and for a copy of a network: copies are not synchronised.
    """
    return _replicas.get(body)


def gradients_kept(replica: DistributedDataParallel | None, *, last: bool) -> AbstractContextManager[None]:
    """Wrap one part of a mini-batch: only the last part sends the summed gradients to the other ranks."""
    return nullcontext() if replica is None or last else replica.no_sync()


def sum_over_ranks(own: Tensor) -> Tensor:
    """Return the sum of the ranks' tensors, equal to the last bit on every rank. It does not wait for a GPU."""
    if ranks() == 1:
        return own
    total = own.clone()
    dist.all_reduce(total)
    return total


class Ranks(SingleProcess):
    """A stage that all ranks compute together, an equal share of each mini-batch and of the validation set per rank."""

    @property
    def number(self) -> int:  # type: ignore[override]
        """The rank of this process."""
        return rank()

    def share(self, start: int, stop: int) -> slice:
        """Return this rank's share of a range."""
        return share(start, stop)

    def means(self, own: tuple[Tensor, ...], examples: int) -> tuple[Tensor, ...]:
        """Return means over all `examples` from the means over this rank's share: tensors of one shape."""
        part = share(0, examples)
        return sum_over_ranks(torch.stack(own) * ((part.stop - part.start) / examples)).unbind()

    @contextmanager
    def replicas(self, body: nn.Module, loss: Loss, order: DataOrder, validating: int) -> Iterator[None]:
        """Within this block, `replica_of` returns the module that trains `body` together with the other ranks.

        The weights of `body` are replaced by those of the first rank. If the cost depends on the data, some parameters
        may be unused in a step; then each step searches for parameters without a gradient.

        Raises:
            ValueError: the ranks cannot share each mini-batch equally, a rank has no validation example, or the network
                has running statistics, such as those of BatchNorm.
        """
        _require_shares(order, validating)
        if any("running_" in name for name, _ in body.named_buffers()):
            raise ValueError(
                f"{type(body).__name__} with {ranks()} ranks: the running statistics of its BatchNorm layers would "
                "differ between ranks; train it in one process"
            )
        some_unused = getattr(body, "cost_depends_on_data", False)
        _replicas[body] = DistributedDataParallel(_Loss(body, loss), find_unused_parameters=some_unused)
        try:
            yield
        finally:
            del _replicas[body]


def _require_shares(order: DataOrder, validating: int) -> None:
    settings, per_epoch = order.settings, order.per_epoch
    parts = ranks() * settings.accumulation
    for examples in (min(settings.batch_size, per_epoch), per_epoch % settings.batch_size):
        if examples % parts:
            raise ValueError(
                f"a mini-batch of {examples} examples with {ranks()} ranks, accumulation={settings.accumulation}: it "
                f"must have {parts} equal parts; use a batch_size that is a multiple of {parts}, and set updates if an "
                "epoch is not a multiple of the batch_size, or train in one process"
            )
    if validating < ranks():
        raise ValueError(
            f"{validating} validation examples with {ranks()} ranks: each rank needs at least 1; start fewer ranks, or "
            "use larger mega-batches"
        )


def sum_charges(meter: Meter) -> None:
    """Add the charges of the other ranks since the last tick to this rank's meter. Call it outside of its block."""
    if ranks() == 1:
        return
    pending: list[Any] = [None] * ranks()
    dist.all_gather_object(pending, meter.pending())
    for other, charges in enumerate(pending):
        if other != rank():
            meter.include(charges)


def require_same(content: str, what: str) -> None:
    """Raise RanksDifferError unless `content` is equal on all ranks; `what` is its name in the error message."""
    if ranks() == 1:
        return
    contents: list[Any] = [None] * ranks()
    dist.all_gather_object(contents, content)
    if len(set(contents)) > 1:
        raise RanksDifferError(
            f"{what} differs between ranks ({', '.join(contents)}): a learner or policy must not depend on values of "
            "one rank, such as its share of the examples or the time; sum such values over the ranks "
            "(agents.training.distributed.sum_over_ranks)"
        )


def from_first(make: Callable[[], R]) -> R:
    """Call `make` on the first rank only and return its result on every rank. `make` must not call `from_first`.

    Raises:
        OtherRankError: on the other ranks, if `make` raised an error; the first rank raises that error itself.
    """
    if ranks() == 1:
        return make()
    message: list[Any] = [None, None]  # result, error
    failed: Exception | None = None
    if rank() == 0:
        try:
            message[0] = make()
        except Exception as error:
            failed, message[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(message)
    if failed is not None:
        raise failed
    if message[1] is not None:
        raise OtherRankError(f"the first rank failed: {message[1]}")
    result: R = message[0]
    return result
