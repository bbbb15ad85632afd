"""What is deployed at a tick: how a predictor is recognised, and how it is made to answer.

A predictor is any ``torch.nn.Module`` that maps a batch of raw inputs to logits. The environment never runs the
learner's own object: it answers with a deep copy in eval mode, so that neither side can disturb the other.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import types
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from alma_env.counting import Counting, Tally
from alma_env.ensemble import Ensemble
from alma_env.errors import AlmaError, PredictorError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from alma_env.tasks import Task


@dataclass(frozen=True)
class Fingerprint:
    """The content of a predictor: what its answers depend on.

    Attributes:
        tensors: content hash of each tensor that the module holds, registered or not, in the order of discovery.
        arrays: content hash of each NumPy array of floats that the module or anything in it holds, likewise.
        structure: hash of everything else (submodules, plain attributes, functions kept on the instance), or None
            where it cannot be told; such a predictor counts as changed at every tick.
        parameters: scalars in ``parameters()``, tied ones once, whether or not they are marked as trainable: |θ|.
        buffers: scalars in all other tensors that the module holds.
        parts: of an `Ensemble`, those of what its members share and of each member.
    """

    tensors: tuple[str, ...]
    structure: str | None
    parameters: int
    buffers: int
    arrays: tuple[str, ...] = ()
    parts: tuple[Fingerprint, ...] = field(default=(), compare=False)  # in what is compared already

    @property
    def digest(self) -> str:
        """One hash over all tensors and arrays."""
        return xxhash.xxh3_128_hexdigest("".join(self.tensors + self.arrays).encode())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values of all that is compared."""
        return {name: value for name, value in asdict(replace(self, parts=())).items() if name != "parts"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """Read what ``to_dict`` gave, also after a way through JSON."""
        return cls(**{**values, "tensors": tuple(values["tensors"]), "arrays": tuple(values["arrays"])})

    def same_as(self, other: Fingerprint | None) -> bool:
        """Whether both are certain to give the same answers."""
        return self.structure is not None and self == other


@dataclass(frozen=True)
class Answer:
    """A predictor's result on the hidden test set.

    Attributes:
        error: fraction of test examples whose highest logit is not the label's (ties: the lowest class index).
        inference_flops: FLOPs per example, mean over the test set, counted on the real inputs.
        steady: every batch cost the same per example, and no operation was seen that lets the cost depend on the data.
    """

    error: float
    inference_flops: float
    steady: bool = False


def tensor_hash(tensor: Tensor) -> str:
    """Hash of a tensor's content, shape and dtype; equal on every device."""
    hasher = xxhash.xxh3_128(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
    flat = tensor.detach()
    if flat.dtype == torch.float32 and flat.device.type == "cpu" and flat.is_contiguous():
        hasher.update(
            flat.numpy().data
        )  # the usual case, without the detours; hundreds of members are hashed at each tick
    elif flat.numel():
        flat = flat.cpu().contiguous()
        hasher.update(memoryview(flat.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return hasher.hexdigest()


def array_hash(array: NDArray[Any]) -> str:
    """Hash of a NumPy array's content, shape and dtype."""
    hasher = xxhash.xxh3_128(f"{array.shape}{array.dtype.str}".encode())
    hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def _stand_for(*parts: object) -> None:
    """Named in place of what a fingerprint describes; never called, since no fingerprint is ever unpickled."""


def _class_content(kind: type) -> tuple[Any, ...]:
    """Name of a class, and what its own and its bases' definitions say: a class may be defined anew, or changed."""
    content: list[Any] = [kind.__module__, kind.__qualname__]
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for name, value in vars(base).items():
            function = value.fget if isinstance(value, property) else value
            if isinstance(function, types.FunctionType):
                content += (name, _code_content(function.__code__))
            elif isinstance(value, int | float | str | list | tuple | dict) and not name.startswith("__"):
                content += (name, repr(value))
    return tuple(content)


@functools.lru_cache(maxsize=4096)
def _code_content(code: types.CodeType) -> str:
    constants = [_code_content(value) if isinstance(value, types.CodeType) else repr(value) for value in code.co_consts]
    return xxhash.xxh3_128_hexdigest(code.co_code + repr((constants, code.co_names)).encode())


class _Describe(pickle.Pickler):
    """Writes a module's structure; tensors are set aside and stand in it as their number."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        # Without the memo the bytes depend on content alone, not on which equal strings happen to be one object.
        self.fast = True
        self.tensors: list[Tensor] = []
        self.arrays: list[str] = []
        self.shared: str | None = None  # a function that holds a module or tensor, which no copy of it would copy
        self._numbers: dict[int, int] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            number = self._numbers.setdefault(id(obj), len(self._numbers))
            if number == len(self.tensors):
                self.tensors.append(obj)
            return _stand_for, ("tensor", number)
        if isinstance(obj, np.ndarray) and np.issubdtype(obj.dtype, np.inexact):
            self.arrays.append(array_hash(obj))
            return _stand_for, ("array", self.arrays[-1])
        if isinstance(obj, nn.Module) and type(obj).__reduce__ is object.__reduce__:
            # Empty registries (hooks, mostly) say nothing and are many.
            state = {
                name: value
                for name, value in vars(obj).items()
                if name != "training" and not (isinstance(value, dict) and not value)
            }
            return _stand_for, ("module", *_class_content(type(obj)), state)
        if isinstance(obj, types.FunctionType) and obj is not _stand_for:
            cells = [cell.cell_contents for cell in obj.__closure__ or ()]
            if any(isinstance(content, nn.Module | Tensor) for content in cells):
                self.shared = obj.__qualname__
            return _stand_for, ("function", obj.__code__, obj.__defaults__, obj.__kwdefaults__, cells)
        if isinstance(obj, types.CodeType):
            return _stand_for, ("code", obj.co_code, obj.co_consts, obj.co_names)
        return NotImplemented


def fingerprint(predictor: nn.Module) -> Fingerprint:
    """Recognise a predictor by its content: weights, buffers and whatever else its forward reads from the module.

    The training flag does not count, since answers are given in eval mode. Module-level global variables that a
    forward may read are outside of the module and are not seen.
    """
    if isinstance(predictor, Ensemble) and predictor.is_plain:
        return _of_parts(predictor)
    buffer = io.BytesIO()
    describe = _Describe(buffer)
    structure: str | None
    try:
        describe.dump(predictor)
        structure = xxhash.xxh3_128_hexdigest(buffer.getvalue())
        tensors = describe.tensors
    except Exception:  # whatever cannot be described makes the predictor new at every tick, which is safe
        structure = None
        tensors = [*predictor.parameters(), *predictor.buffers()]
    if describe.shared is not None:
        raise PredictorError(
            f"{_name(predictor)} holds the function {describe.shared}, and in it a module or tensor, which would be "
            "shared with the learner, since functions are not copied: register it as a submodule or buffer"
        )
    try:
        hashes = tuple(tensor_hash(tensor) for tensor in tensors)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise PredictorError(
            f"{_name(predictor)} holds a tensor whose content cannot be read ({error}): deploy a module whose tensors "
            "are initialised, dense and not on the meta device"
        ) from error
    parameters = sum(parameter.numel() for parameter in predictor.parameters())
    return Fingerprint(
        tensors=hashes,
        structure=structure,
        parameters=parameters,
        buffers=sum(tensor.numel() for tensor in tensors) - parameters,
        arrays=tuple(describe.arrays),
    )


def _of_parts(ensemble: Ensemble) -> Fingerprint:
    """The parts' fingerprints are needed anyway, to tell which members are new: hundreds of them are described once."""
    parts = tuple(fingerprint(part) for part in (ensemble.prepare, *ensemble.members))
    rest = nn.Module()
    rest.__dict__.update({name: value for name, value in vars(ensemble).items() if name != "_modules"})
    structures = [fingerprint(rest).structure, *(part.structure for part in parts)]
    known = [structure for structure in structures if structure is not None]
    scalars = sum(part.parameters + part.buffers for part in parts)
    parameters = sum(parameter.numel() for parameter in ensemble.parameters())  # tied ones once
    return Fingerprint(
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        structure=xxhash.xxh3_128_hexdigest("".join(known).encode()) if len(known) == len(structures) else None,
        parameters=parameters,
        buffers=scalars - sum(part.parameters for part in parts),
        arrays=tuple(array for part in parts for array in part.arrays),
        parts=parts,
    )


def changed_parameters(predictor: nn.Module, mark: Fingerprint, known: Set[str]) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters whose content is not among the `known` hashes; `mark` is the predictor's fingerprint."""
    if isinstance(predictor, Ensemble) and mark.parts:
        # Its members were described one by one: only new ones are looked into.
        named = [("prepare", predictor.prepare), *((f"members.{n}", m) for n, m in enumerate(predictor.members))]
        return [
            (f"{place}.{name}", parameter)
            for (place, part), of_part in zip(named, mark.parts, strict=True)
            if not known >= set(of_part.tensors)
            for name, parameter in changed_parameters(part, of_part, known)
        ]
    return [
        (name, parameter) for name, parameter in predictor.named_parameters() if tensor_hash(parameter) not in known
    ]


def unwrap(predictor: nn.Module) -> nn.Module:
    """The module behind ``torch.compile``'s wrapper: compiling changes the speed, not the predictor."""
    original = getattr(predictor, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else predictor


def freeze(predictor: nn.Module) -> nn.Module:
    """An independent copy in eval mode, without gradients.

    Raises:
        PredictorError: the module cannot be copied.
    """
    try:
        frozen = copy.deepcopy(predictor)
    except Exception as error:
        raise PredictorError(
            f"{_name(predictor)} cannot be copied ({error}); a deployed predictor must survive copy.deepcopy: "
            "keep open files, generators, locks and tensors with a graph out of its attributes"
        ) from error
    return frozen.eval().requires_grad_(False)


def device_of(predictor: nn.Module) -> torch.device:
    """Where its first tensor lies; the CPU where it has none."""
    return next((t.device for t in [*predictor.parameters(), *predictor.buffers()]), torch.device("cpu"))


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Without gradients; a predictor that draws random numbers answers the same way every time in such a block.

    The learner's own generators are left alone.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        # Not torch.manual_seed, which would also reseed the devices that are not forked here.
        torch.default_generator.manual_seed(0)
        if devices:
            torch.cuda.manual_seed(0)
        yield


def answer(
    predictor: nn.Module,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    steady_flops: float | None = None,
) -> Answer:
    """Make a frozen predictor answer on the whole test set; see `run` for the arguments.

    Raises:
        PredictorError: as `run`, or the answers have no finite error.
        UnknownCostError: it runs an operation whose cost is unknown to the meter.
    """
    kept, flops, steady = run(predictor, x, y, task=task, batch_size=batch_size, steady_flops=steady_flops)
    return Answer(error=task.error(kept, y), inference_flops=flops, steady=steady)


def run(
    predictor: nn.Module,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    task: Task,
    batch_size: int,
    steady_flops: float | None = None,
) -> tuple[Tensor, float, bool]:
    """What the task keeps of a frozen predictor's logits, its FLOPs per example, and whether these are steady.

    Args:
        predictor: what ``freeze`` returned; it is run, so it may change, and is not to be kept.
        x: raw test inputs (n, ...).
        y: labels (n, ...).
        task: what is asked of the predictor.
        batch_size: examples per forward pass; fixed by the environment, so that sums of floats repeat to the last bit.
        steady_flops: what a predictor of the same structure cost per example in every batch of an earlier, steady
            answer. If the first batch costs that, too, and looks at no data, the others are not counted.

    Raises:
        PredictorError: it raised, it changed its input, or its output is not floating-point logits of the task's
            shape without NaN.
        UnknownCostError: it runs an operation whose cost is unknown to the meter.
    """
    device = device_of(predictor)
    costs: list[float] = []  # FLOPs per example of each batch
    looks_at_data = False
    weights: list[int] = []
    answers: list[Tensor] = []
    with undisturbed(device):
        for start in range(0, len(x), batch_size):
            part = x[start : start + batch_size]
            # A copy: the predictor gets no handle on the test set's memory.
            batch = torch.from_numpy(part.copy()).to(device)
            version = batch._version
            known = bool(costs) and costs[0] == steady_flops and not looks_at_data
            tally = None if known else Tally("inference")
            logits = _logits(predictor, batch, task, tally)
            answers.append(task.keep(logits, y[start : start + batch_size]))  # a copy: it may reuse its output
            if tally is not None:
                costs.append(tally.total() / len(part))
                weights.append(len(part))
                looks_at_data |= tally.looks_at_data
            # Writing through NumPy leaves the version as it is; the whole content is compared on one batch only.
            if batch._version != version or (start == 0 and not np.array_equal(batch.cpu().numpy(), part)):
                raise PredictorError(
                    f"{_name(predictor)} changed its input in place: a predictor must leave it alone; "
                    "use x.clone() or an out-of-place operation"
                )
        kept = torch.cat(answers)
        if bool(torch.isnan(kept.sum())) and bool(torch.isnan(kept).any()):  # a sum is NaN also for ∞ − ∞
            raise PredictorError(
                f"{_name(predictor)} returned NaN logits: an answer must be comparable; has the training diverged? "
                "Deploy another predictor at this tick, or None to keep the one before"
            )
    mean = sum(cost * weight for cost, weight in zip(costs, weights, strict=True)) / sum(weights)
    equal = len(set(costs)) == 1
    return kept, costs[0] if equal else mean, equal and not looks_at_data


def _logits(predictor: nn.Module, batch: Tensor, task: Task, tally: Tally | None) -> Tensor:
    """One forward pass, counted where there is a tally, and checked."""
    name = _name(predictor)
    try:
        with Counting(tally) if tally is not None else nullcontext():
            logits = predictor(batch)
    except AlmaError:
        raise
    except Exception as error:
        raise PredictorError(
            f"{name} raised {type(error).__name__} on a raw batch of shape {tuple(batch.shape)} and dtype "
            f"{batch.dtype}: {error}. A predictor gets raw inputs and does its own scaling; "
            "deploy another one at this tick, or None to keep the one before"
        ) from error
    expected = task.logits_shape(batch)
    if not isinstance(logits, Tensor):
        raise PredictorError(
            f"{name} returned {type(logits).__name__}: a predictor returns a tensor of logits {expected}"
        )
    if tuple(logits.shape) != expected:
        raise PredictorError(
            f"{name} returned shape {tuple(logits.shape)}: logits must have shape {task.shape} = {expected}"
        )
    if not logits.is_floating_point():
        raise PredictorError(
            f"{name} returned dtype {logits.dtype}: logits must be floating point; return scores, not class indices"
        )
    return logits


def _name(predictor: nn.Module) -> str:
    return f"predictor {type(predictor).__name__}"
