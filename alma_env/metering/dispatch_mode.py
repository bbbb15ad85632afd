"""The dispatch mode that counts every operation that PyTorch executes in this thread, below autograd.

`torch.utils.flop_counter.FlopCounterMode` counts 0 FLOPs for an operation that is not in its table. This mode raises
`alma_env.errors.UnknownCostError`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch._C._dynamo.guards import set_is_in_mode_without_ignore_compile_internals
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch as dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.metering.content.backward_passes import current_pass, passes
from alma_env.metering.content.beside import Beside
from alma_env.metering.content.content_flow import Flow, flow_of
from alma_env.metering.content.provenance import ProvenanceStore
from alma_env.metering.content.storages import WeakStorage, key_of, tensors_of
from alma_env.metering.content.touched import is_parameter
from alma_env.metering.costs import cost_table
from alma_env.metering.costs.cost_formulas import Formula
from alma_env.metering.tally import Tally

_DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class _Plan(NamedTuple):
    """How the mode handles an operation; computed once per operation."""

    formula: Formula | None
    registered: str | None  # what a user registered for the operation
    decompose: bool  # the operation is neither metered nor free; its parts may be
    flow: Flow
    only_views: bool
    writes: bool
    data_dependent: bool  # item(), nonzero(), masks, …


class Copies:
    """The tensors that a function on copies may write to: the copies of its arguments, and what it creates."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._known: dict[int, WeakStorage] = {}
        self.beside = Beside()  # written by functions in the function
        self.note_all(list(tensors), "")

    def look_at_all(self, tensors: Iterable[Tensor]) -> tuple[list[Tensor], str]:
        """Return the tensors; see `ProvenanceStore.look_at_all`."""
        return list(tensors), ""

    def look_beside(self, *_: Iterable[Any]) -> str:
        """Return that no gradient or state is foreign; see `ProvenanceStore.look_beside`."""
        return ""

    def note_all(self, found: list[Tensor], foreign: str) -> None:
        """Note that the function wrote or created tensors."""
        for tensor in found:
            self.note_written(tensor, foreign)

    def note_written(self, tensor: Tensor, foreign: str = "") -> None:
        """Note that the function wrote or created a tensor."""
        if (key := key_of(tensor)) is not None and key not in self._known:
            self._known[key] = WeakStorage(tensor)

    def note_copies(self, _: Iterable[Tensor], copies: Iterable[Tensor]) -> None:
        """Note that the function created copies."""
        self.note_all(list(copies), "")

    def knows(self, tensor: Tensor) -> bool:
        """Return whether the function may write to a tensor; to counters it always may."""
        floating = tensor.is_floating_point() or tensor.is_complex()
        if not floating or (key := key_of(tensor)) is None or key in self._known:
            return True
        for written, foreign, _ in self.beside.take():
            self.note_written(written, foreign)
        return key in self._known


class CountingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds the FLOPs of each operation to a tally, and notes what it does to the content of tensors.

    With `Copies`, an operation that writes to a tensor that is not among them is refused.
    """

    supports_higher_order_operators = True

    def __init__(self, tally: Tally, provenance: ProvenanceStore | Copies | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = tally
        self.provenance = provenance
        self._backward_passes = passes().seen

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
        store, flow = self.provenance, plan.flow
        inputs = None
        if isinstance(store, Copies):
            self._refuse_unknown(func, store, flow.written(args, kwargs))
        elif store is not None and not plan.only_views:
            inputs = store.inputs(flow, args, kwargs)
        elif store is not None and args and is_parameter(args[0]):
            store.look_at_all(args[:1])  # a view of a parameter does not tell that it is one
        out = func(*args, **kwargs)
        if plan.data_dependent:
            self.tally.data_dependent = True
        backward = current_pass()
        if backward != -1:
            self._backward_passes.add(backward)
        if plan.formula is not None:
            self.tally.current[backward != -1] += cost_table.evaluate(plan.formula, func, args, kwargs, out)
            if plan.registered is not None:
                self.tally.registered.add(plan.registered)
        if isinstance(store, Copies):
            made = tensors_of(out) if flow.creates or flow.lifts else []
            store.note_all([*made, *flow.written(args, kwargs)], "")
        elif store is not None and inputs is not None:
            store.outputs(flow, inputs, out, flow.written(args, kwargs) if plan.writes else (), args)
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

    def _refuse_unknown(self, func: Any, copies: Copies, written: list[Tensor]) -> None:
        for tensor in written:
            if not copies.knows(tensor):
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
    flow = flow_of(func)
    writes = bool(flow.writes or flow.writes_named)
    data_dependent = isinstance(func, HigherOrderOperator) or not _DATA_DEPENDENT.isdisjoint(func.tags)
    return _Plan(formula, registered, unknown, flow, flow.only_views, writes, data_dependent)
