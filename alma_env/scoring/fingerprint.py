"""Fingerprints: a predictor is recognized by its content.

A predictor is any ``torch.nn.Module`` that maps a batch of raw inputs to logits.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from alma_env.errors import PredictorError
from alma_env.metering.registries import is_empty_registry
from alma_env.scoring.ensemble import Ensemble
from alma_env.scoring.held_objects import is_in
from alma_env.scoring.hidden_numbers import FEW, hidden_numbers
from alma_env.scoring.module_tree import named_buffers, named_parameters
from alma_env.scoring.outline import Outline, outline

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SHIPPED = frozenset({"torch", "builtins"})
Kind = tuple[str, int, int]  # structure, parameters and buffers of a predictor


@dataclass(frozen=True)
class Fingerprint:
    """The content of a predictor, which determines its answers.

    Attributes:
        tensors: content hash of each tensor that the module holds, registered or not, in the order of discovery.
        arrays: content hash of each NumPy array that the module holds or its code reads, in the order of discovery;
            a few integers are not counted as an array.
        structure: hash of everything else (submodules, plain attributes, functions stored on the instance), or None
            if it cannot be computed; the predictor then counts as changed at every tick.
        parameters: number of scalars in ``parameters()``, tied ones once, trainable or not: |θ|.
        buffers: number of scalars in all other tensors and arrays that the module holds or its code reads, and in
            other places with many numbers.
        numbers: for each place with other numbers, such as a list, a hash of its content and how many they are.
        reads_values: whether its code may read values of tensors without an operation of PyTorch, as ``tolist`` does.
        parts: for an `Ensemble`, the fingerprints of its preparation and of each member.
    """

    tensors: tuple[str, ...]
    structure: str | None
    parameters: int
    buffers: int
    arrays: tuple[str, ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()
    reads_values: bool = False
    parts: tuple[Fingerprint, ...] = field(default=(), compare=False)  # the other fields include them

    @property
    def digest(self) -> str:
        """One hash over all tensors and arrays."""
        return xxhash.xxh3_128_hexdigest("".join(self.tensors + self.arrays).encode())

    @property
    def kind(self) -> Kind | None:
        """What the FLOPs of an answer usually depend on; None if the structure or the path through it is unknown."""
        if self.structure is None or self.reads_values:
            return None
        content = "".join((self.structure, *(place for place, _ in self.numbers)))
        return xxhash.xxh3_128_hexdigest(content.encode()), self.parameters, self.buffers

    def to_dict(self) -> dict[str, Any]:
        """Return the compared fields as plain JSON values."""
        return {name: value for name, value in asdict(replace(self, parts=())).items() if name != "parts"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        """Read the return value of ``to_dict``, also from JSON."""
        numbers = tuple((content, int(count)) for content, count in values.get("numbers", ()))
        lists = {name: tuple(values[name]) for name in ("tensors", "arrays")}
        return cls(**{**values, **lists, "numbers": numbers})

    def same_as(self, other: Fingerprint | None) -> bool:
        """Return whether both certainly give the same answers."""
        return self.structure is not None and self == other


def tensor_hash(tensor: Tensor) -> str:
    """Return a hash of a tensor's content, shape and dtype; equal on every device."""
    hasher = xxhash.xxh3_128(_kind_of_tensor(tensor.shape, tensor.dtype))
    flat = tensor.detach()
    if flat.dtype == torch.float32 and flat.is_cpu and flat.is_contiguous():
        hasher.update(flat.numpy().data)  # a faster path for the usual case: hundreds of members are hashed per tick
    elif flat.numel():
        flat = flat.cpu().contiguous()
        hasher.update(memoryview(flat.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return hasher.hexdigest()


@functools.lru_cache(maxsize=4096)
def _kind_of_tensor(shape: torch.Size, dtype: torch.dtype) -> bytes:
    return f"{tuple(shape)}{dtype}".encode()


def _array_hash(array: NDArray[Any]) -> str:
    hasher = xxhash.xxh3_128(f"{array.shape}{array.dtype.str}".encode())
    hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def _placeholder(*parts: object) -> None:
    """Placeholder in the description of an object; never called, because descriptions are never unpickled."""


def _class_content(kind: type) -> tuple[Any, ...]:
    """Return the name of a class and the content of its definition and its bases: a class can be redefined."""
    content: list[Any] = [kind.__module__, kind.__qualname__]
    for base in kind.__mro__:
        if is_in(base, _SHIPPED):
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


class _Description(pickle.Pickler):
    """Writes a module's structure; each tensor is collected, and its number is written instead."""

    def __init__(self, file: io.BytesIO, predictor: nn.Module) -> None:
        super().__init__(file, protocol=5)
        self._registered = {id(tensor) for _, tensor in (*named_parameters(predictor), *named_buffers(predictor))}
        # Without the memo, the bytes depend on content only, and not on which equal strings are one object.
        self.fast = True
        self.tensors: list[Tensor] = []
        self.arrays: list[str] = []
        self.array_elements = 0
        self.shared: str | None = None  # name of a function whose closure has a module or tensor; it is not copied
        self._numbers: dict[int, int] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            number = self._numbers.setdefault(id(obj), len(self._numbers))
            if number == len(self.tensors):
                self.tensors.append(obj)
            return _placeholder, ("tensor", number)
        if isinstance(obj, np.ndarray) and (np.issubdtype(obj.dtype, np.inexact) or obj.size > FEW):
            self.arrays.append(_array_hash(obj))
            self.array_elements += obj.size
            return _placeholder, ("array", self.arrays[-1])
        if isinstance(obj, nn.Module) and type(obj).__reduce__ is object.__reduce__:
            state = {
                name: value for name, value in vars(obj).items() if name != "training" and not is_empty_registry(value)
            }
            return _placeholder, ("module", *_class_content(type(obj)), state)
        if isinstance(obj, types.FunctionType) and obj is not _placeholder:
            cells = [cell.cell_contents for cell in obj.__closure__ or ()]
            if any(isinstance(content, nn.Module | Tensor) for content in cells):
                self.shared = obj.__qualname__
            return _placeholder, ("function", obj.__code__, obj.__defaults__, obj.__kwdefaults__, cells)
        if isinstance(obj, types.CodeType):
            return _placeholder, ("code", obj.co_code, obj.co_consts, obj.co_names)
        if type(obj) is weakref.ReferenceType and id(obj()) in self._registered:  # those of a recurrent layer
            return _placeholder, ("reference", obj())
        return NotImplemented


def fingerprint(predictor: nn.Module) -> Fingerprint:
    """Return the fingerprint of a predictor: weights, buffers and everything else that its forward reads from it.

    The training flag is ignored, because answers are computed in eval mode. Global variables that the code reads take
    part.

    Raises:
        PredictorError: the predictor holds a tensor that cannot be read, or a function that would not be copied.
    """
    if isinstance(predictor, Ensemble) and predictor.is_plain:
        return _ensemble_fingerprint(predictor)
    buffer = io.BytesIO()
    description = _Description(buffer, predictor)
    structure: str | None
    try:
        description.dump(predictor)
        structure = xxhash.xxh3_128_hexdigest(buffer.getvalue())
        tensors = description.tensors
    except Exception:  # a predictor that cannot be described counts as new at every tick, which is safe
        structure = None
        tensors = [tensor for _, tensor in (*named_parameters(predictor), *named_buffers(predictor))]
    if description.shared is not None:
        raise PredictorError(
            f"{predictor_name(predictor)} holds the function {description.shared}, whose closure has a module or "
            "tensor: functions are not copied, so the learner would share it; register it as a submodule or buffer"
        )
    hidden = hidden_numbers(predictor)
    held = {id(tensor) for tensor in tensors}
    tensors = [*tensors, *(tensor for tensor in hidden.tensors if id(tensor) not in held)]
    hashes = _hashes(tensors, predictor)
    parameters = sum(parameter.numel() for _, parameter in named_parameters(predictor))
    elements = sum(tensor.numel() for tensor in tensors) + description.array_elements
    return Fingerprint(
        tensors=hashes,
        structure=structure,
        parameters=parameters,
        buffers=elements - parameters + hidden.many + sum(one.size for one in hidden.arrays),
        arrays=(*description.arrays, *(_array_hash(one) for one in hidden.arrays)),
        numbers=(*hidden.places, *hidden.choices),
        reads_values=hidden.reads_values,
    )


def _hashes(tensors: Iterable[Tensor], predictor: nn.Module) -> tuple[str, ...]:
    try:
        return tuple(tensor_hash(tensor) for tensor in tensors)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise PredictorError(
            f"{predictor_name(predictor)} holds a tensor whose content cannot be read ({error}): tensors must be "
            "initialised, dense and not on the meta device; deploy another module"
        ) from error


def _member_fingerprints(members: Iterable[nn.Module]) -> Iterator[Fingerprint]:
    """Yield the fingerprint of each member; of members with one outline, only the first is searched."""
    first: dict[Outline, Fingerprint] = {}
    for member in members:
        drawn = outline(member)
        if drawn is None:
            yield fingerprint(member)
            continue
        outline_of_member, tensors = drawn
        if outline_of_member in first:
            yield replace(first[outline_of_member], tensors=_hashes(tensors, member))
            continue
        whole = fingerprint(member)
        if len(whole.tensors) == len(tensors) and not whole.arrays:  # nothing outside of the member, such as in a hook
            first[outline_of_member] = whole
        yield whole


def _ensemble_fingerprint(ensemble: Ensemble) -> Fingerprint:
    """Build the fingerprint of an ensemble from its parts: scoring needs them, too, to find the new members."""
    parts = (fingerprint(ensemble.prepare), *_member_fingerprints(ensemble.members))
    rest = nn.Module()
    rest.__dict__.update({name: value for name, value in vars(ensemble).items() if name != "_modules"})
    structures = [fingerprint(rest).structure, *(part.structure for part in parts)]
    known = [structure for structure in structures if structure is not None]
    return Fingerprint(
        tensors=tuple(tensor for part in parts for tensor in part.tensors),
        structure=xxhash.xxh3_128_hexdigest("".join(known).encode()) if len(known) == len(structures) else None,
        parameters=sum(parameter.numel() for _, parameter in named_parameters(ensemble)),  # tied ones once
        buffers=sum(part.buffers for part in parts),
        arrays=tuple(array for part in parts for array in part.arrays),
        numbers=tuple(place for part in parts for place in part.numbers),
        reads_values=any(part.reads_values for part in parts),
        parts=parts,
    )


def changed_tensors(predictor: nn.Module, mark: Fingerprint, known: Set[str]) -> list[tuple[str, Tensor]]:
    """Return names and tensors whose content is not among the `known` hashes (of ``Fingerprint.tensors``).

    Parameters and buffers come first; tensors that are held or read in other ways are called "a tensor".
    """
    if isinstance(predictor, Ensemble) and mark.parts:
        # The fingerprint has the hashes of each member: members without new tensors are skipped.
        named = [("prepare", predictor.prepare), *((f"members.{n}", m) for n, m in enumerate(predictor.members))]
        return [
            (f"{place}.{name}", parameter)
            for (place, part), part_fingerprint in zip(named, mark.parts, strict=True)
            if not known >= set(part_fingerprint.tensors)
            for name, parameter in changed_tensors(part, part_fingerprint, known)
        ]
    registered = [*named_parameters(predictor), *named_buffers(predictor)]
    others: list[tuple[str, Tensor]] = []
    if len(registered) != len(mark.tensors):
        held = {id(tensor) for _, tensor in registered}
        description = _Description(io.BytesIO(), predictor)
        with contextlib.suppress(Exception):
            description.dump(predictor)
        found = {id(tensor): tensor for tensor in (*description.tensors, *hidden_numbers(predictor).tensors)}
        others = [("a tensor", tensor) for tensor in found.values() if id(tensor) not in held]
    return [(name, tensor) for name, tensor in (*registered, *others) if tensor_hash(tensor) not in known]


def predictor_name(predictor: nn.Module) -> str:
    """Return the name of a predictor in error messages."""
    return f"predictor {type(predictor).__name__}"
