"""Evaluation: how a predictor answers on the hidden test set.

The environment never runs the learner's module. It runs a deep copy in eval mode, so that neither the learner nor the
environment disturbs the other.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from alma_env.errors import AlmaError, DivergedError, PredictorError
from alma_env.metering.dispatch_mode import CountingMode
from alma_env.metering.tally import Tally
from alma_env.scoring.fingerprint import predictor_name
from alma_env.scoring.module_copy import copy_module
from alma_env.scoring.module_tree import attributes_of, evaluate_only, named_buffers, named_parameters, submodules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alma_env.scoring.normalised import NormalisedInputs
    from alma_env.scoring.tasks import Task


@dataclass(frozen=True)
class Answer:
    """A predictor's result on the hidden test set.

    An answer is steady if every batch had the same cost per example, and no operation ran whose cost may depend on the
    data. Answers of ensembles that are scored incrementally are never steady.
    """

    error: float  # of the task
    inference_flops: float  # per example, mean over the test set, counted on the real inputs
    steady: bool = False


def unwrap(predictor: nn.Module) -> nn.Module:
    """Return a module without the wrappers of ``torch.compile``: compiling changes the speed, not the predictor.

    If a part is compiled, the result has copies of the modules, which share all tensors.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # loaded by the first compilation
    wrapper: type[nn.Module] | None = getattr(compiler, "OptimizedModule", None)
    if wrapper is None:
        return predictor
    if isinstance(predictor, wrapper):
        return unwrap(_wrapped_by(predictor))
    if not any(isinstance(one, wrapper) for _, one in submodules(predictor)):
        return predictor
    return _without(wrapper, predictor, {})


def _wrapped_by(compiled: nn.Module) -> nn.Module:
    original: nn.Module = attributes_of(compiled)["_modules"]["_orig_mod"]
    return original


def _without(wrapper: type[nn.Module], module: nn.Module, copies: dict[int, nn.Module]) -> nn.Module:
    """Return a copy of a module without wrappers inside, and with the same tensors; `copies` has those made, by id."""
    while isinstance(module, wrapper):
        module = _wrapped_by(module)
    if id(module) not in copies:
        plain = copies[id(module)] = object.__new__(type(module))  # no method of the class is called
        attributes = attributes_of(plain)
        attributes.update(attributes_of(module))
        parts = attributes["_modules"]
        attributes["_modules"] = {
            name: part if part is None else _without(wrapper, part, copies) for name, part in parts.items()
        }
    return copies[id(module)]


def freeze(predictor: nn.Module) -> nn.Module:
    """Return an independent copy in eval mode, without gradients; raise PredictorError if there can be no copy."""
    try:
        frozen = copy_module(predictor)
    except PredictorError:
        raise
    except Exception as error:
        raise PredictorError(
            f"{predictor_name(predictor)} cannot be copied ({error}): a deployed predictor must support copy.deepcopy; "
            "remove open files, generators, locks and tensors with a graph from its attributes"
        ) from error
    evaluate_only(frozen)
    return frozen


def device_of(predictor: nn.Module) -> torch.device:
    """Return the device of the predictor's first tensor, or the CPU if it has no tensors."""
    tensors = itertools.chain(named_parameters(predictor), named_buffers(predictor))
    return next((tensor.device for _, tensor in tensors), torch.device("cpu"))


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Disable gradients and autocast, and seed the random generators: a predictor repeats its answers.

    The states of the learner's generators are restored.
    """
    devices = [device] if device.type == "cuda" else []
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        stack.enter_context(torch.no_grad())
        for kind in {"cpu", device.type}:  # a predictor that enters autocast itself still has it
            stack.enter_context(torch.autocast(kind, enabled=False))
        # torch.manual_seed would also reseed the devices whose state is not restored here.
        torch.default_generator.manual_seed(0)
        if devices:
            torch.cuda.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def answer(
    predictor: nn.Module,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    steady_flops: float | None = None,
    inputs: NormalisedInputs | None = None,
) -> Answer:
    """Return a frozen predictor's answer on the whole test set; arguments and errors as for `run`."""
    kept, flops, steady = run(
        predictor, x, y, task=task, batch_size=batch_size, steady_flops=steady_flops, inputs=inputs
    )
    return Answer(task.error(kept, y), flops, steady)


def run(
    predictor: nn.Module,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    steady_flops: float | None = None,
    inputs: NormalisedInputs | None = None,
) -> tuple[Tensor, float, bool]:
    """Run a frozen predictor on the whole test set.

    Args:
        predictor: the return value of ``freeze``. It may change while it runs, so do not use it afterwards.
        x: raw test inputs (n, ...).
        y: labels (n, ...).
        task: the task.
        batch_size: examples per forward pass; fixed by the environment, so that sums of floats repeat to the last bit.
        steady_flops: FLOPs per example of an earlier, steady answer of a predictor with the same structure. If the
            first batch costs the same and its cost does not depend on the data, the other batches are not counted.
        inputs: keeps the normalised test inputs for the next call, which saves normalising them again.

    Returns:
        The part of the logits that the task keeps, the FLOPs per example, and whether these are steady.

    Raises:
        PredictorError: the predictor raised, it changed its input, or its output is not a tensor of floating-point
            logits of the task's shape without NaN.
    """
    device = device_of(predictor)
    costs: list[float] = []  # FLOPs per example of each counted batch
    sizes: list[int] = []  # of the counted batches
    data_dependent = False
    answers: list[Tensor] = []
    with reproducible(device):
        normalised = None if inputs is None else inputs.batches_for(predictor, x, batch_size, device)
        body, batches = normalised or (predictor, _raw_batches(predictor, x, batch_size, device))
        start = 0
        for batch in batches:
            part = x[start : start + batch_size]
            known = bool(costs) and costs[0] == steady_flops and not data_dependent
            tally = None if known else Tally("inference")
            with _explained(predictor, part), CountingMode(tally) if tally is not None else nullcontext():
                logits = body(batch)
            _require_logits(predictor, logits, part, task)
            answers.append(task.keep(logits, y[start : start + batch_size]))  # a copy: the output may be reused
            if tally is not None:
                costs.append(tally.total() / len(part))
                sizes.append(len(part))
                data_dependent |= tally.data_dependent
            start += batch_size
            del batch, logits  # so that the next batch gets the same memory, which is in the processor's cache
        kept = torch.cat(answers)
        require_comparable(predictor, kept)
    if len(set(costs)) == 1:
        return kept, costs[0], not data_dependent
    return kept, sum(cost * size for cost, size in zip(costs, sizes, strict=True)) / sum(sizes), False


def require_comparable(predictor: nn.Module, kept: Tensor) -> None:
    """Raise DivergedError if a predictor's logits, or what a task keeps of them, have NaN."""
    if math.isnan(kept.sum()) and bool(torch.isnan(kept).any()):  # ∞ − ∞ makes the sum NaN, too
        raise DivergedError(
            f"{predictor_name(predictor)} returned NaN logits, perhaps because the training diverged: logits must "
            "be comparable"
        )


def _raw_batches(predictor: nn.Module, x: NDArray[Any], batch_size: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the raw inputs, batch by batch, and check after the use of a batch that the predictor did not change it."""
    for start in range(0, len(x), batch_size):
        part = x[start : start + batch_size]
        # A copy: the predictor must get no reference to the memory of the test set.
        batch = torch.from_numpy(part.copy()).to(device)
        version = batch._version
        yield batch
        # NumPy does not change the version, so the content of one batch is compared as well.
        if batch._version != version or (start == 0 and not np.array_equal(batch.cpu().numpy(), part)):
            raise PredictorError(
                f"{predictor_name(predictor)} changed its input in place: a predictor must not change its input; "
                "use x.clone() or an out-of-place operation"
            )
        del batch


@contextmanager
def _explained(predictor: nn.Module, part: NDArray[Any]) -> Iterator[None]:
    """Raise a PredictorError for an error of the predictor on these raw inputs."""
    try:
        yield
    except AlmaError:
        raise
    except Exception as error:
        raise PredictorError(
            f"{predictor_name(predictor)} raised {type(error).__name__} on a raw batch of shape {part.shape} and dtype "
            f"{torch.from_numpy(part[:0].copy()).dtype}: {error}. A predictor gets raw inputs and must scale them "
            "itself; deploy another one at this tick, or None to keep the previous one"
        ) from error


def _require_logits(predictor: nn.Module, logits: object, part: NDArray[Any], task: Task) -> None:
    name, expected = predictor_name(predictor), task.logits_shape(part)
    if not isinstance(logits, Tensor):
        raise PredictorError(f"{name} returned {type(logits).__name__}: must be a tensor of logits {expected}")
    if logits.is_nested or logits.layout is not torch.strided or logits.device.type == "meta":
        kind = "nested" if logits.is_nested else "meta" if logits.layout is torch.strided else "sparse"
        raise PredictorError(f"{name} returned a {kind} tensor: logits must be dense numbers; return a dense tensor")
    if tuple(logits.shape) != expected:
        raise PredictorError(
            f"{name} returned shape {tuple(logits.shape)}: logits must have shape {task.shape} = {expected}"
        )
    if not logits.is_floating_point():
        raise PredictorError(
            f"{name} returned dtype {logits.dtype}: logits must be floating point; return scores, not class indices"
        )
    if logits.dtype.itemsize < 2:
        raise PredictorError(
            f"{name} returned dtype {logits.dtype}, with which PyTorch cannot compute: return logits.float()"
        )
