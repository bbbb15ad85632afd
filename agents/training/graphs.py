"""The engine for GPUs: a training step and the validation are recorded as CUDA graphs and then replayed.

On a GPU, PyTorch takes longer to start an operation of a small network than the GPU takes to compute it. A graph starts
all operations of a training step at once. The mini-batches, the formulas and the FLOPs are those of the plain engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import Protocol

import torch
from torch import Tensor, nn

from agents.networks.mlp_vgg import Predictor
from agents.training.best_checkpoint import BestEpoch
from agents.training.data_order import DataOrder, MiniBatches
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Curves, Examples, plain_engine
from agents.training.step import new_optimizer, train_mini_batch, validate
from agents.training.unmodified import is_unmodified
from alma_env.metering import meter
from alma_env.metering.tally import Charges, Tally
from alma_env.metering.uncounted import note_backward_passes, uncounted


def supports_graphs(body: nn.Module, settings: StageSettings) -> bool:
    """Return whether the steps of a stage are equal, so that one recorded step stands for all."""
    # The known networks and layers neither wait for the device nor draw random numbers in a step.
    return (
        is_unmodified(body)
        and not any(getattr(module, "cost_depends_on_data", False) for module in body.modules())
        and (settings.updates, settings.accumulation, settings.clip) == (None, 1, None)
    )


class Recorder(Protocol):
    """Records work in a `with` block."""

    def __enter__(self) -> Recorder:
        """Begin the block."""

    def __exit__(self, *error: object) -> None:
        """End the block."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does the recorded work again, on the same memory."""

    def keep_pace(self) -> None:
        """Wait until the device has done what it had to do at the last call."""


class CudaGraphs:
    """Records work as CUDA graphs. All work of the block is on one stream of the device, as a recording demands."""

    def __init__(self, device: torch.device) -> None:
        self._stream, self._block = _stream_of(device), ExitStack()
        self._last_call: torch.cuda.Event | None = None

    def __enter__(self) -> CudaGraphs:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._block.enter_context(torch.cuda.stream(self._stream))
        # The steps of the first epoch are not recorded, and optimizers warn of that.
        self._block.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "This instance was constructed with capturable=True", UserWarning)
        return self

    def __exit__(self, *error: object) -> None:
        self._block.close()
        self._stream.synchronize()  # a graph must outlive its replays

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays the work. Recording does not compute it."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            work()
        return graph.replay

    def keep_pace(self) -> None:
        """Wait, without using the processor, until the device has done what it had to do at the last call."""
        last_call, self._last_call = self._last_call, torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._last_call.record()
        if last_call is not None:
            last_call.synchronize()


@cache
def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all recordings on a device: the memory of a stage is then free for the next stage."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def graphs_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    order: DataOrder,
    on_epoch: OnEpoch | None,
    *,
    recorder: Recorder | None = None,
) -> Curves:
    """Compute the first epoch of a stage operation by operation, and all others by replaying steps and validation.

    The plain engine computes the stage if its steps differ, since a network can change after the engine was chosen, and
    on other devices than a GPU.
    """
    body, settings = predictor.body, order.settings
    if not supports_graphs(body, settings) or (recorder is None and not train.y.is_cuda):
        return plain_engine(predictor, train, valid, order, on_epoch)
    starts = range(0, order.per_epoch, settings.batch_size)
    sizes = [min(settings.batch_size, order.per_epoch - start) for start in starts]

    with recorder or CudaGraphs(train.y.device) as recorder:
        stage = _Stage(predictor, train, valid, order)
        initial = stage.score() if settings.keep_initial else None
        epoch_tally, running = Tally(None), meter.running()
        with nullcontext() if running is None else running.count_into(epoch_tally):
            for size in sizes:
                stage.train_on(size)
            stage.score_epoch()
        epochs = 1
        if not stage.ends_after(1, on_epoch):
            with stage.uncounted():
                train_on = {size: recorder.record(partial(stage.train_on, size)) for size in set(sizes)}
                score_epoch = recorder.record(stage.score_epoch)
            for epochs in range(2, settings.epochs + 1):
                with stage.uncounted(epoch_tally.charges()):
                    for size in sizes:
                        train_on[size]()
                    score_epoch()
                    recorder.keep_pace()
                if stage.ends_after(epochs, on_epoch):
                    break
        with stage.uncounted():
            stage.best.restore()
    losses, errors = stage.curves[:, :epochs]
    return Curves(losses, errors, stage.best.epoch, stage.best.criterion, initial)


class _Stage:
    """The two parts of an epoch as functions that know from the device where in the stage they are."""

    def __init__(self, predictor: Predictor, train: Examples, valid: Examples, order: DataOrder) -> None:
        device = train.y.device
        self.settings, self.body = order.settings, predictor.body
        self.best = BestEpoch(self.body, self.settings)
        # Validation losses and errors; float64 holds those of every network.
        self.curves = torch.zeros(2, self.settings.epochs, dtype=torch.float64, device=device)
        self._mini_batches = MiniBatches(predictor.normalize, train.x, train.y, order)
        self._valid = predictor.normalize(valid.x), valid.y
        self._optimizer, _ = new_optimizer(self.body, self.settings)
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._epoch = torch.zeros(1, dtype=torch.int64, device=device)
        self._written = [*self.body.parameters(), *self.body.buffers()]
        self._read = [train.x, train.y, valid.x, valid.y]
        self._backward_passes = 0  # that PyTorch ran: a replay runs none
        if train.y.is_cuda:
            for group in self._optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True

    @contextmanager
    def uncounted(self, charges: Charges = ()) -> Iterator[None]:
        """Run a block where the meter cannot see it, and charge it, also after an error."""
        before = self._backward_passes
        try:
            with uncounted(self._written, self._read):
                yield
        finally:
            note_backward_passes(self._backward_passes - before)
            if (running := meter.running()) is not None:
                running.charge(charges)

    def ends_after(self, epoch: int, on_epoch: OnEpoch | None) -> bool:
        """Report the end of an epoch; return whether it is the last."""
        if on_epoch is not None:
            on_epoch(epoch)
        patience = self.settings.patience
        return epoch == self.settings.epochs or (patience is not None and epoch - int(self.best.epoch) >= patience)

    def train_on(self, size: int) -> None:
        """Take one optimizer step on the next examples."""
        self.body.train()
        positions = torch.arange(size, device=self._position.device) + self._position
        train_mini_batch(self.body, self._optimizer, *self._mini_batches.at(positions), self.settings)
        self._position += size
        self._backward_passes += 1

    def score(self) -> tuple[Tensor, Tensor]:
        """Return the validation loss and error, and keep the weights if they are the best so far."""
        loss, error = validate(self.body, *self._valid, self.settings.validation_batch)
        self.best.offer(loss, error)
        return loss, error

    def score_epoch(self) -> None:
        """Enter the validation results of an epoch into the curves."""
        self.curves.index_copy_(1, self._epoch, torch.stack(self.score()).double().unsqueeze(1))
        self._epoch += 1
