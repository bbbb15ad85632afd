"""What an operation does to the content of tensors: which it reads, writes, creates, and moves unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload

from alma_env.metering.content.storages import tensors_of

# The schemas of these norms do not declare that they update their running statistics, which are these arguments.
_NORMS = ["native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm", "_batch_norm_impl_index"]
_NORMS += ["instance_norm", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"]
_WRITES_STATISTICS = dict.fromkeys(_NORMS, (3, 4)) | {"batch_norm_update_stats": (1, 2)}
_COPIES = {"copy_": 1, "clone": 0, "_to_copy": 0}  # the argument that is copied unchanged
_FILLS = {"fill_", "zero_", "_foreach_zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_"}
_FILLS |= {"cauchy_", "log_normal_", "geometric_"}
_WRITES_PARTS = {"index_put_": 2, "_index_put_impl_": 2, "put_": 2, "masked_fill_": 2, "masked_scatter_": 2}
_WRITES_PARTS |= {"index_fill_": 3, "index_copy_": 3, "scatter_": 3}  # the argument that is written
_SELECTS = {"index", "_unsafe_index", "index_select"}
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_UNWRITTEN |= {"empty_quantized", "_empty_affine_quantized", "_empty_per_channel_affine_quantized"}
# The result may hold what no operation wrote. With these names there are also functions in place and with `out=`.
_LIFTS = {"lift_fresh", "set", "from_file", "resize", "resize_as", "resize_as_sparse", "_resize_output"}
_SHAPE_ONLY = {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros"}
_SHAPE_ONLY |= {"new_ones", "new_full"}


class Flow(NamedTuple):
    """What an operation does to content; derived once per operation from its schema."""

    creates: bool  # some output is not a view of an argument
    writes: tuple[int, ...] = ()  # positional arguments that the operation writes to
    writes_named: tuple[str, ...] = ()  # keyword arguments that the operation writes to
    copies: int | None = None  # the argument whose content the operation copies unchanged
    overwrites: bool = False  # the content before does not matter for what is written
    into_parts: int | None = None  # the argument that is written into some elements; the others keep theirs
    selects: bool = False  # argument 0 is selected from, by the indices in the others
    unwritten: bool = False  # the output has no content yet
    lifts: bool = False  # the output may hold what no operation wrote
    shape_only: bool = False  # the content of the arguments does not matter
    pairs: bool = False  # the operation copies each tensor of the second list to one of the first
    joins: bool = False  # the output is a list of tensors, one after another
    leaves: bool = False  # others may write to the output after the operation has returned

    @property
    def only_views(self) -> bool:
        """Whether the operation neither creates nor writes."""
        return not (self.creates or self.writes or self.writes_named or self.lifts)

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Return the tensors among the arguments that the operation writes to."""
        positional = [args[position] for position in self.writes if position < len(args)]
        return tensors_of([*positional, *(kwargs[name] for name in self.writes_named if name in kwargs)])

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Return the tensors among the arguments whose content may reach what the operation writes or creates."""
        if self.shape_only or self.lifts:
            return []
        found: list[Tensor] = []
        for position, argument in enumerate(args):
            if isinstance(argument, Tensor):
                if not (self.overwrites and position in self.writes):
                    found.append(argument)
            elif isinstance(argument, list | tuple) and not (self.overwrites and position in self.writes):
                found += tensors_of(argument)
        for name, argument in kwargs.items():
            if name not in self.writes_named:
                found += tensors_of(argument)
        return found


def flow_of(func: OpOverload | HigherOrderOperator) -> Flow:
    """Return what an operation does to content."""
    if isinstance(func, HigherOrderOperator):
        return Flow(creates=True)
    schema = func._schema
    namespace, _, name = schema.name.partition("::")
    arguments = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    writes = [i for i, argument in arguments if not argument.kwarg_only]
    named = tuple(argument.name for _, argument in arguments if argument.kwarg_only)
    if namespace == "aten":
        writes += _WRITES_STATISTICS.get(name, ())
    lifts = name.removesuffix("_") in _LIFTS
    return Flow(
        creates=any(result.alias_info is None for result in schema.returns) and not lifts,
        writes=() if lifts else tuple(writes),
        writes_named=named,
        copies=_COPIES.get(name),
        overwrites=name in _FILLS or name == "copy_" or bool(named and not writes),
        into_parts=_WRITES_PARTS.get(name),
        selects=name in _SELECTS,
        unwritten=name in _UNWRITTEN,
        lifts=lifts,
        shape_only=name in _SHAPE_ONLY,
        pairs=name == "_foreach_copy_",
        joins=name in ("cat", "stack", "_stack"),
        leaves=namespace not in ("aten", "prims"),
    )
