"""Count the elements that pass through operations without FLOPs: such operations can also compute a matrix product."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.metering.costs.cost_table import rule


class FreeElements(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements that pass through operations without FLOPs.

    Attributes:
        count: sum over operations of the larger of input and output elements.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(result.alias_info is not None and not result.alias_info.is_write for result in func._schema.returns)
        cost = rule(func)
        if not views and (cost is None or isinstance(cost, str)):
            self.count += max(_numel((args, kwargs)), _numel(out))
        return out


def _numel(values: Any) -> int:
    return max((leaf.numel() for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)), default=0)
