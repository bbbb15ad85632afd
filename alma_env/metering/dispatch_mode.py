"""The dispatch mode that counts every operation that PyTorch executes in this thread, below autograd.

`torch.utils.flop_counter.FlopCounterMode` counts 0 FLOPs for an operation that is not in its table. This mode raises
`alma_env.errors.UnknownCostError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch._C._dynamo.guards import set_is_in_mode_without_ignore_compile_internals
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch as dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.metering import cost_table
from alma_env.metering.cost_formulas import Formula
from alma_env.metering.provenance import ProvenanceStore, tensors_of
from alma_env.metering.tally import Tally

_in_backward: Callable[[], int] = torch._C._current_graph_task_id  # -1 outside of autograd's backward pass

_COPIES = {"aten::copy_": 1, "aten::_foreach_copy_": 1, "aten::clone": 0, "aten::_to_copy": 0}  # argument copied from
_DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
# The schemas of older batch norms do not declare that they update their running statistics (arguments 3 and 4).
_WRITES_STATISTICS = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}


class _Plan(NamedTuple):
    """How the mode handles an operation; computed once per operation."""

    formula: Formula | None
    registered: str | None  # what a user registered for the operation
    decompose: bool  # the operation is neither metered nor free; its parts may be
    creates: bool  # some output is not a view of an argument
    writes: tuple[int, ...]  # positional arguments that the operation writes to
    writes_named: tuple[str, ...]  # keyword arguments that the operation writes to
    data_dependent: bool  # item(), nonzero(), masks, …
    copies: int | None  # the argument whose content the operation copies unchanged

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Return the tensors among the arguments that the operation writes to."""
        positional = [args[position] for position in self.writes if position < len(args)]
        return tensors_of([*positional, *(kwargs[name] for name in self.writes_named if name in kwargs)])


class CountingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds the FLOPs of each operation to a tally, and notes which tensors it writes, creates, or reads as parameters.

    With `only_known`, an operation that writes to a tensor that `provenance` does not know is refused.
    """

    supports_higher_order_operators = True

    def __init__(self, tally: Tally, provenance: ProvenanceStore | None = None, *, only_known: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = tally
        self.provenance = provenance
        self.only_known = only_known

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see set_code_exec_strategy below

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if kind is FakeTensor:
                return func(*args, **kwargs)  # computes nothing
            if kind not in _PLAIN_TENSORS and not _is_plain(kind):
                return NotImplemented  # a tensor subclass with its own dispatch: its inner operations are counted
        plan = _plan(func)
        if plan.decompose:
            return self._by_parts(func, args, kwargs)
        if self.only_known and (plan.writes or plan.writes_named):
            self._refuse_unknown(func, plan, args, kwargs)
        out = func(*args, **kwargs)
        if plan.data_dependent:
            self.tally.data_dependent = True
        if plan.formula is not None:
            self.tally.current[_in_backward() != -1] += cost_table.evaluate(plan.formula, func, args, kwargs, out)
            if plan.registered is not None:
                self.tally.registered.add(plan.registered)
        store = self.provenance
        if store is None:
            return out
        for arg in args:
            if type(arg) is nn.Parameter:
                store.note_read(arg)
        if plan.copies is not None and not self.only_known and not store.made(tensors_of(args[plan.copies])):
            # Copying does not give weights that were trained elsewhere a provenance.
            for tensor in [*tensors_of(out), *plan.written(args, kwargs)]:
                store.note_foreign(tensor)
            return out
        if plan.creates:
            for tensor in tensors_of(out):
                store.note_written(tensor)
        if plan.writes or plan.writes_named:
            for tensor in plan.written(args, kwargs):
                store.note_written(tensor)
        return out

    def suspend(self) -> list[TorchDispatchMode] | None:
        """Remove this mode from the stack, so that compiled functions run compiled; the modes above it stay.

        Return the modes above, or None if this mode is not on the stack because all modes are disabled.
        """
        stack = dispatch._get_current_dispatch_mode_stack()
        if self not in stack:
            return None
        above = stack[stack.index(self) + 1 :]
        # The base class's bookkeeping only, without what these modes do on entry and exit.
        for mode in (*reversed(above), self):
            exit_mode(mode)
        for mode in above:
            enter_mode(mode)
        return above

    def resume(self, above: list[TorchDispatchMode] | None) -> None:
        """Put the mode back to its place on the stack; `above` is the return value of `suspend`."""
        if above is None:
            return
        for mode in reversed(above):
            exit_mode(mode)
        for mode in (self, *above):
            enter_mode(mode)

    def _refuse_unknown(self, func: Any, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for tensor in plan.written(args, kwargs):
            if self.provenance is not None and not self.provenance.knows(tensor):
                raise RuntimeError(
                    f"count_once: {cost_table.qualified_name(func)} writes to a tensor of shape {tuple(tensor.shape)} "
                    "that is not among the function's arguments, and counting would change it; pass all tensors "
                    "that the function changes"
                )

    def _by_parts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, OpOverload):
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        raise cost_table.unknown(func)


# A compiled function runs eagerly under this mode; PyTorch must not compile the mode instead. PyTorch's own
# option for this, `_should_skip_dynamo`, takes more time per operation than the counting.
set_code_exec_strategy(
    CountingMode.__torch_dispatch__.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
)


_lock = threading.Lock()
_counting = 0  # how many modes count, in all threads


def enter_mode(mode: TorchDispatchMode) -> None:
    """Push a mode with the base class's bookkeeping only."""
    global _counting
    with _lock:
        TorchDispatchMode.__enter__(mode)  # type: ignore[no-untyped-call]
        _counting += isinstance(mode, CountingMode)


def exit_mode(mode: TorchDispatchMode) -> None:
    """Pop a mode that `enter_mode` pushed."""
    global _counting
    with _lock:
        TorchDispatchMode.__exit__(mode, None, None, None)  # type: ignore[no-untyped-call]
        _counting -= isinstance(mode, CountingMode)
        if _counting or not dispatch._get_current_dispatch_mode_stack():
            _set_flags(_counting > 0)


def _set_flags(running: bool) -> None:
    # PyTorch compiles no function while these flags are set. They belong to the process, and a mode restores what it
    # found: after two threads, PyTorch could compile what a meter must see, or could never compile again.
    dispatch._is_in_torch_dispatch_mode = running
    dispatch._is_in_non_infra_torch_dispatch_mode = running
    dispatch._is_in_any_mode_without_ignore_compile_internals = running
    set_is_in_mode_without_ignore_compile_internals(running)


_PLAIN_TENSORS: set[type] = {Tensor, nn.Parameter}


def _is_plain(kind: type) -> bool:
    if kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]
        _PLAIN_TENSORS.add(kind)
        return True
    return False


@cost_table.cached_until_registration
def _plan(func: OpOverload | HigherOrderOperator) -> _Plan:
    unknown = cost_table.rule(func) is None
    formula, registered = cost_table.formula_of(func), cost_table.registration(func)
    if isinstance(func, HigherOrderOperator):
        return _Plan(formula, registered, unknown, True, (), (), True, None)
    schema = func._schema
    arguments = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    writes = [i for i, argument in arguments if not argument.kwarg_only]
    named = [argument.name for _, argument in arguments if argument.kwarg_only]
    if schema.name in _WRITES_STATISTICS:
        writes += [3, 4]
    creates = any(result.alias_info is None for result in schema.returns) or schema.name == "aten::lift_fresh"
    data_dependent = not _DATA_DEPENDENT.isdisjoint(func.tags)
    copies = _COPIES.get(schema.name)
    return _Plan(formula, registered, unknown, creates, tuple(writes), tuple(named), data_dependent, copies)
