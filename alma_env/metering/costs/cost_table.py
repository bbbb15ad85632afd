"""The table of costs: the FLOPs that each PyTorch operation is charged, 1 multiply-add = 2 FLOPs.

ALMA paper, section 3. An operation is *metered* (`cost_formulas`), *free by definition* (`free_operations`), or
*unknown*. The meter raises an error for an unknown operation and never counts it as zero; register its cost with
`register_cost`, or declare it free with `register_free`.

`alma_env.flops` is this module.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.errors import UnknownCostError
from alma_env.metering.costs import (
    attention_formulas,
    cost_formulas,
    factorisation_formulas,
    recurrent_formulas,
    transform_formulas,
)
from alma_env.metering.costs.conditional_formulas import CONDITIONS
from alma_env.metering.costs.cost_formulas import Formula, by_qualified_name
from alma_env.metering.costs.free_operations import FREE
from alma_env.metering.costs.number_formats import format_factor
from alma_env.metering.costs.own_kernels import has_own_kernel

T = TypeVar("T")

FORMULAS: dict[str, Formula] = (
    cost_formulas.FORMULAS
    | attention_formulas.FORMULAS
    | recurrent_formulas.FORMULAS
    | factorisation_formulas.FORMULAS
    | transform_formulas.FORMULAS
)
"""Formulas of the metered operations by qualified name (`aten::mm`), which includes the in-place form (`aten::mm_`)."""

_FREE_NAMES = by_qualified_name(FREE)
_REGISTERED: dict[str, Formula | str] = {}  # by users: a formula, or the reason why the operation is free
_CACHES: list[Callable[[], None]] = []  # functions that clear them


def cached_until_registration(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Cache what `function` derives from the costs of an operation, until a cost is registered."""
    cached = functools.cache(function)
    _CACHES.append(cached.cache_clear)
    return cached


def _clear_caches() -> None:
    for clear in _CACHES:
        clear()


def qualified_name(operation: Any) -> str:
    """Return `aten::mm` or `aten::mm.out`; the name of a packet of overloads has no overload."""
    if isinstance(operation, OpOverload):
        overload = operation._schema.overload_name
        return operation._schema.name + (f".{overload}" if overload else "")
    if isinstance(operation, OpOverloadPacket):
        return str(operation._qualified_op_name)
    return f"higher_order::{operation.name()}"


@cached_until_registration
def rule(operation: OpOverload | HigherOrderOperator) -> Formula | str | None:
    """Return the formula of a metered operation, the reason why an operation is free, or None for an unknown cost."""
    full = qualified_name(operation)
    name = full.partition(".")[0]
    for key in (full, name):
        if key in _REGISTERED:
            return _REGISTERED[key]
    found: Formula | str | None = next(
        (FORMULAS[key] for key in (full, name, name.removesuffix("_")) if key in FORMULAS), None
    )
    found = found or _free_reason(name)
    return None if found is not None and isinstance(operation, OpOverload) and has_own_kernel(operation) else found


@cached_until_registration
def formula_of(operation: OpOverload | HigherOrderOperator) -> Formula | None:
    """Return what computes the FLOPs of a call; None if all calls are free, or if the cost is unknown.

    The calls of a registered operation have a formula also if they are free, because the meter notes them.
    """
    found = rule(operation)
    if found is None or callable(found):
        return found
    return _costs_nothing if registration(operation) is not None else _condition(qualified_name(operation))


def _costs_nothing(out: Any, *args: Any, **kwargs: Any) -> int:
    return 0


def _condition(name: str) -> Formula | None:
    namespace, _, base = name.partition(".")[0].partition("::")
    base = base.removeprefix("_foreach_")
    return CONDITIONS.get(f"{namespace}::{base}") or CONDITIONS.get(f"{namespace}::{base.removesuffix('_')}")


@cached_until_registration
def registration(operation: OpOverload | HigherOrderOperator) -> str | None:
    """Return what a user registered for an operation, as a text for the ledger; None for the table's operations."""
    full = qualified_name(operation)
    for name in (full, full.partition(".")[0]):
        if name in _REGISTERED:
            entry = _REGISTERED[name]
            return f"{name} is free: {entry}" if isinstance(entry, str) else f"{name} has a registered cost"
    return None


def _free_reason(name: str) -> str | None:
    namespace, _, base = name.partition("::")
    for form in (base, base.removesuffix("_"), base.removesuffix("_copy")):
        if (reason := _FREE_NAMES.get(f"{namespace}::{form}")) is not None:
            return reason
        if namespace in {"aten", "prims"} and _is_pointwise(form):
            return next(iter(FREE))
        if namespace == "prims" and (reason := _FREE_NAMES.get(f"aten::{form}")) is not None:
            return reason
    if base.startswith("_foreach_"):
        return _free_reason(f"{namespace}::{base.removeprefix('_foreach_')}")
    return None


def _is_pointwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, OpOverloadPacket):
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]  # type: ignore[no-untyped-call]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def evaluate(formula: Formula, called: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Return the FLOPs of one call by `formula` and the number format of its operands.

    Raises:
        ValueError: the formula did not return a non-negative integer.
    """
    if "out" in kwargs:
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    found = formula(out, *args, **kwargs)
    # Compared as a plain int: a subclass of int can define its own comparison.
    if isinstance(found, bool) or not hasattr(found, "__index__") or (flops := operator.index(found)) < 0:
        raise ValueError(
            f"{qualified_name(called)}: its cost formula returned {found!r}: must be a non-negative int; correct it"
        )
    total = flops * format_factor(args, kwargs) if flops else 0
    if isinstance(called, HigherOrderOperator):
        for function, arguments, times in attention_formulas.functions_of_scores(qualified_name(called), args, kwargs):
            total += times * _flops_of(function, arguments)
    return total


class _Sum(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the FLOPs of the operations in a function that another operation calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if rule(func) is None:
            raise unknown(func)
        out, formula = func(*args, **(kwargs or {})), formula_of(func)
        if formula is not None:
            self.flops += evaluate(formula, func, args, kwargs or {}, out)
        return out


def _flops_of(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    parts = _Sum()
    with torch.inference_mode(False), torch.no_grad(), parts:
        function(*args)
    return parts.flops


def register_cost(operation: Any, formula: Formula) -> None:
    """Register the cost of an operation that the meter does not know.

    Args:
        operation: `torch.ops.<namespace>.<name>`, one overload of it, an operator made with
            `torch.library.custom_op`, or a higher-order operator.
        formula: called as `formula(out, *args, **kwargs)` with the operation's output and arguments; returns the FLOPs
            of the call on numbers of 32 bits, 2 for each multiply-add. It should depend on shapes only. The meter
            multiplies them for wider and for complex numbers.

    Ledgers name the registered operations that ran in metered blocks.

    Raises:
        TypeError: `operation` is not an operation of PyTorch, or `formula` is not callable.
        ValueError: the operation has a cost already.

    >>> import torch, alma_env
    >>> exponential = torch.ops.aten.linalg_matrix_exp
    >>> alma_env.flops.register_cost(exponential, lambda out, a: 2 * 10 * a.numel() * a.shape[-1])
    >>> alma_env.flops.unregister(exponential)
    """
    if not callable(formula):
        raise TypeError(
            f"register_cost: formula={formula!r}: must be callable; pass a function (out, *args, **kwargs) -> int"
        )
    _register("register_cost", operation, formula)


def register_free(operation: Any, reason: str) -> None:
    """Register an operation as free.

    Args:
        operation: as for `register_cost`.
        reason: why the operation is free, for example "it moves data".

    Raises:
        TypeError: `operation` is not an operation of PyTorch, or `reason` is not a non-empty string.
        ValueError: the operation has a cost already.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise TypeError(
            f"register_free: reason={reason!r}: must be a non-empty string; state why the operation is free"
        )
    _register("register_free", operation, reason)


def unregister(operation: Any) -> None:
    """Remove the registration of `operation`; the built-in table stays.

    Raises:
        ValueError: the operation is not registered.
    """
    name = _registered_name("unregister", operation)
    if name not in _REGISTERED:
        raise ValueError(f"unregister: {name} is not registered; call register_cost or register_free first")
    del _REGISTERED[name]
    _clear_caches()


def _registered_name(caller: str, operation: Any) -> str:
    operation = getattr(operation, "_opoverload", operation)  # torch.library.custom_op
    if not isinstance(operation, OpOverload | OpOverloadPacket | HigherOrderOperator):
        raise TypeError(
            f"{caller}: operation={operation!r} is not an operation of PyTorch; pass torch.ops.<namespace>.<name>, "
            "for example torch.ops.aten.linalg_matrix_exp"
        )
    name = qualified_name(operation)
    return name.partition(".")[0] if isinstance(operation, OpOverload) and name.endswith(".default") else name


def _register(caller: str, operation: Any, entry: Formula | str) -> None:
    name = _registered_name(caller, operation)
    base = name.partition(".")[0]
    if name in _REGISTERED:
        raise ValueError(f"{caller}: {name} is registered already; call alma_env.flops.unregister first")
    if base in FORMULAS or base.removesuffix("_") in FORMULAS:
        raise ValueError(
            f"{caller}: {name} is metered by alma_env already; the built-in costs are part of the protocol"
        )
    if (reason := _free_reason(base)) is not None:
        raise ValueError(
            f"{caller}: {name} is free by definition already ({reason}); the table is part of the protocol"
        )
    _REGISTERED[name] = entry
    _clear_caches()


def unknown(operation: Any) -> UnknownCostError:
    """Return the error for an operation of unknown cost: its name, and how to register it."""
    name = qualified_name(operation)
    namespace, _, base = name.partition(".")[0].partition("::")
    path = f"torch.ops.{namespace}.{base}"
    return UnknownCostError(
        f"{name}: this operation computes and its cost is unknown to the meter. Register it before the metered block, "
        f"in FLOPs (2 for each multiply-add):\n"
        f"    alma_env.flops.register_cost({path}, lambda out, *args, **kwargs: ...)\n"
        f"or, if it only moves data:\n"
        f'    alma_env.flops.register_free({path}, "the reason")'
    )
