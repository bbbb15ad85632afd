"""How many times as long this machine takes as the rates that come with the package, measured with short runs."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from statistics import geometric_mean

import torch

from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.throughput import measure, measure_long, measured_data, rates_of
from agents.sweeps.process_setup import keep_freed_memory
from alma_env import AlmaError


@dataclass(frozen=True)
class _Sample:
    """A run that is measured.

    Attributes:
        spec: the run.
        seconds: CPU seconds of its stages that are measured; ignored if ``epochs`` is given.
        epochs: epochs of a stage from which the time of a whole stage is computed.
    """

    spec: RunSpec
    seconds: float = 4.0
    epochs: int | None = None


def _on_cpu(data: str, agent: str, width: int, wait: int, **settings: int) -> RunSpec:
    return RunSpec(f"{data}-ALMA-v0", agent, width, wait, settings=settings, device="cpu")


_SAMPLES = {
    "MNIST": (
        _Sample(_on_cpu("MNIST", "sm", 4, 10)),
        _Sample(_on_cpu("MNIST", "sm", 64, 10)),
        _Sample(_on_cpu("MNIST", "gmoe", 16, 10)),
    ),
    "CIFAR10": (
        _Sample(_on_cpu("CIFAR10", "sm", 4, 2), epochs=21),
        _Sample(_on_cpu("CIFAR10", "sm", 16, 2), epochs=5),
    ),
    "Digits": (
        _Sample(_on_cpu("Digits", "sm", 4, 1, epochs=10), seconds=1.0),
        _Sample(_on_cpu("Digits", "gmoe", 4, 1, epochs=10), seconds=1.0),
    ),
}


@dataclass(frozen=True)
class Calibration:
    """How many times as long this machine takes for one kind of data.

    Attributes:
        data: a data set of ``throughput.toml``.
        factors: seconds here divided by seconds with the rates of the package, for each sample and process.
    """

    data: str
    factors: tuple[float, ...]

    @property
    def factor(self) -> float:
        """The geometric mean of the factors."""
        return geometric_mean(self.factors)


def samples_for(data: Collection[str]) -> list[str]:
    """Return the data sets that `calibrate` measures for these; of data sets with equal images only one, and no text.

    Raises:
        ValueError: none of the data can be measured.

    >>> samples_for(["FashionMNIST", "MNIST", "Text"])
    ['MNIST']
    """
    names = {measured_data(name) for name in data}
    measured = [name for name in _SAMPLES if name in names]
    if not measured:
        raise ValueError(
            f"--calibrate for runs on {', '.join(sorted(data))}: only data like {', '.join(_SAMPLES)} are measured; "
            "leave --calibrate out"
        )
    return measured


def calibrate(data: Collection[str], workers: int) -> list[Calibration]:
    """Measure this machine with samples of the runs on some data sets; it takes about a minute for each.

    Args:
        data: names of data sets, such as MNIST.
        workers: processes that measure at the same time, because runs side by side slow each other down.

    Raises:
        AlmaError: a process ended without a result.
        ValueError: none of the data can be measured.
    """
    measured = samples_for(data)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _prepare, (context.Barrier(workers),)) as pool:
            by_worker = list(pool.map(_factors, [measured] * workers))
    except BrokenProcessPool as error:
        raise AlmaError(
            f"--calibrate: one of {workers} processes ended without a result; if the memory was short, give fewer "
            "--workers"
        ) from error
    return [Calibration(name, tuple(factor for found in by_worker for factor in found[name])) for name in measured]


def slowness(calibrations: Iterable[Calibration]) -> dict[str, float]:
    """Return the factors of the data sets, as `cost_of` takes them."""
    return {one.data: one.factor for one in calibrations}


def _prepare(barrier: Barrier) -> None:
    """Wait until all processes have started, so that each measures beside the others."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a process without a traceback
    torch.set_num_threads(1)
    keep_freed_memory()
    barrier.wait()


def _factors(names: Sequence[str]) -> dict[str, list[float]]:
    return {name: list(map(_factor, _SAMPLES[name])) for name in names}


def _factor(sample: _Sample) -> float:
    facts = sample.spec.known_facts()
    expected = rates_of(resolve(sample.spec, facts), facts.data).training
    if sample.epochs is None:
        return expected / measure(sample.spec, sample.seconds).rate
    return expected / measure_long(sample.spec, sample.epochs).rate
