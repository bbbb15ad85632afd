"""The dispatch mode that counts: it sees every operation that PyTorch executes in this thread, below autograd.

Where `torch.utils.flop_counter.FlopCounterMode` takes an operation that is not in its table for free, this one
raises `alma_env.errors.UnknownCostError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch as dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env import flops
from alma_env.formulas import Formula
from alma_env.seals import Seals, tensors_of

_in_backward: Callable[[], int] = torch._C._current_graph_task_id  # -1 outside of autograd's backward pass

Phase = str | None  # None: the phase that is current where the count is charged
Charges = tuple[tuple[Phase, int, int], ...]  # (phase, FLOPs outside of backward passes, FLOPs inside)

# Older batch norms update their running statistics (arguments 3 and 4) without saying so in their schemas.
_MOVES = {"aten::copy_": 1, "aten::_foreach_copy_": 1, "aten::clone": 0, "aten::_to_copy": 0}
_LOOK_AT_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_WRITES_STATISTICS = {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}


class Tally:
    """FLOPs per phase, outside and inside of autograd's backward pass, and the phase that is current.

    Attributes:
        looks_at_data: an operation ran whose result lets Python code, or shapes, depend on the values in tensors.
    """

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.looks_at_data = False
        self.cells: dict[Phase, list[int]] = {}  # phase -> [forward, backward]
        self.cell = self.cells.setdefault(phase, [0, 0])

    def enter(self, phase: Phase) -> Phase:
        """Make `phase` current and return the one that was."""
        before = self.phase
        self.phase = phase
        self.cell = self.cells.setdefault(phase, [0, 0])
        return before

    def clear(self) -> None:
        """Forget what was counted; the phase stays."""
        self.cells = {}
        self.cell = self.cells.setdefault(self.phase, [0, 0])

    def charges(self) -> Charges:
        """What was counted, without empty phases."""
        return tuple(
            (phase, forward, backward) for phase, (forward, backward) in self.cells.items() if forward or backward
        )

    def add(self, charges: Charges) -> None:
        """Add FLOPs that were counted elsewhere; those of phase None go to the phase that is current."""
        for phase, forward, backward in charges:
            cell = self.cell if phase is None else self.cells.setdefault(phase, [0, 0])
            cell[0] += forward
            cell[1] += backward

    def total(self) -> int:
        """FLOPs over all phases."""
        return sum(map(sum, self.cells.values()))


class _Plan(NamedTuple):
    """What to do with an operation, worked out once."""

    formula: Formula | None
    decompose: bool  # neither metered nor free: its parts are, or its cost is unknown
    creates: bool  # some output is no view of an argument
    writes: tuple[int, ...]  # positional arguments that it writes to
    writes_named: tuple[str, ...]  # keyword arguments that it writes to
    looks_at_data: bool  # item(), nonzero(), masks, …
    moves: int | None  # the argument whose content it puts elsewhere as it is

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The tensors among the arguments that the operation writes to."""
        positional = [args[position] for position in self.writes if position < len(args)]
        return tensors_of([*positional, *(kwargs[name] for name in self.writes_named if name in kwargs)])


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Charges each operation to a tally, and tells the seals, if any, which tensors it writes, creates, or reads as
    parameters.

    With `only_known`, an operation that writes to a tensor that the seals do not know is refused.
    """

    supports_higher_order_operators = True

    def __init__(self, tally: Tally, seals: Seals | None = None, *, only_known: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tally = tally
        self.seals = seals
        self.only_known = only_known

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see below

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if kind is FakeTensor:
                return func(*args, **kwargs)  # computes nothing
            if kind not in _PLAIN and not _is_plain(kind):
                return NotImplemented  # a tensor subclass with a dispatch of its own: its inner operations come here
        plan = _PLANS.get(func)
        if plan is None or plan.decompose:
            plan = _plan(func)
            if plan.decompose:
                return self._by_parts(func, args, kwargs)
        if self.only_known and (plan.writes or plan.writes_named):
            self._refuse_unknown(func, plan, args, kwargs)
        out = func(*args, **kwargs)
        if plan.looks_at_data:
            self.tally.looks_at_data = True
        if plan.formula is not None:
            self.tally.cell[_in_backward() != -1] += flops.evaluate(plan.formula, func, args, kwargs, out)
        seals = self.seals
        if seals is None:
            return out
        for arg in args:
            if type(arg) is nn.Parameter:
                seals.read(arg)
        if plan.moves is not None and not self.only_known and not seals.made(tensors_of(args[plan.moves])):
            # Not computed here: weights that were trained elsewhere do not become the meter's by being copied.
            for tensor in [*tensors_of(out), *plan.written(args, kwargs)]:
                seals.forget(tensor)
            return out
        if plan.creates:
            for tensor in tensors_of(out):
                seals.write(tensor)
        if plan.writes or plan.writes_named:
            for tensor in plan.written(args, kwargs):
                seals.write(tensor)
        return out

    def lift(self) -> list[TorchDispatchMode] | None:
        """Take this mode off the stack, so that compiled functions run compiled, and leave the modes above it.

        Returns what `lower` needs to put it back; None when it is not on the stack: all modes are disabled.
        """
        stack = dispatch._get_current_dispatch_mode_stack()
        if self not in stack:
            return None
        above = stack[stack.index(self) + 1 :]
        # PyTorch's book-keeping happens, and nothing of what these modes do on entry and exit.
        for mode in reversed(above):
            exit_mode(mode)
        exit_mode(self)
        for mode in above:
            enter_mode(mode)
        return above

    def lower(self, above: list[TorchDispatchMode] | None) -> None:
        """Put the mode back to where `lift` took it from."""
        if above is None:
            return
        for mode in reversed(above):
            exit_mode(mode)
        enter_mode(self)
        for mode in above:
            enter_mode(mode)

    def _refuse_unknown(self, func: Any, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for tensor in plan.written(args, kwargs):
            if self.seals is not None and not self.seals.knows(tensor):
                raise RuntimeError(
                    f"count_once: {flops.qualified_name(func)} writes to a tensor of shape {tuple(tensor.shape)} that "
                    "is not among the function's arguments, and counting would change it: pass all that it changes"
                )

    def _by_parts(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, OpOverload):
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        raise flops.unknown(func)


# Under this mode a compiled function runs eagerly; the mode itself is not to be compiled in its place. PyTorch's own
# way to say so, `_should_skip_dynamo`, takes more time per operation than the counting.
set_code_exec_strategy(Counting.__torch_dispatch__.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def enter_mode(mode: TorchDispatchMode) -> None:
    """Push a mode, by the base class's book-keeping only."""
    TorchDispatchMode.__enter__(mode)  # type: ignore[no-untyped-call]


def exit_mode(mode: TorchDispatchMode) -> None:
    """Pop a mode that `enter_mode` pushed."""
    TorchDispatchMode.__exit__(mode, None, None, None)  # type: ignore[no-untyped-call]


_PLANS: dict[Any, _Plan] = {}
flops.derived(_PLANS)
_PLAIN: set[type] = {Tensor, nn.Parameter}


def _is_plain(kind: type) -> bool:
    if kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl:  # type: ignore[attr-defined]
        _PLAIN.add(kind)
        return True
    return False


def _plan(func: OpOverload | HigherOrderOperator) -> _Plan:
    found = flops.rule(func)
    formula = None if isinstance(found, str) else found
    if isinstance(func, HigherOrderOperator):
        plan = _Plan(formula, found is None, True, (), (), True, None)
    else:
        schema = func._schema
        arguments = [
            (i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        writes = [i for i, argument in arguments if not argument.kwarg_only]
        named = [argument.name for _, argument in arguments if argument.kwarg_only]
        if schema.name in _WRITES_STATISTICS:
            writes += [3, 4]
        creates = any(result.alias_info is None for result in schema.returns) or schema.name == "aten::lift_fresh"
        looks = not _LOOK_AT_DATA.isdisjoint(func.tags)
        moves = _MOVES.get(schema.name)
        plan = _Plan(formula, found is None, creates, tuple(writes), tuple(named), looks, moves)
    _PLANS[func] = plan
    return plan
