"""A predictor as data: a list of PyTorch operations and the tensors that they take, as JSON and safetensors.

What a submission deploys crosses from its sandbox to the evaluator in this form. Reading it executes nothing: every
operation is looked up in a table of functional ATen operations, every argument is a plain value or the result of an
operation before, and nothing is unpickled. `leaderboard.exporting` writes it, `leaderboard.interpreter` runs it.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch._ops import OpOverload

from alma_env.errors import AlmaError
from alma_env.flops import rule

VERSION = 1
GRAPH_BYTES = 16 * 2**20
NODES = 200_000
DEPTH = 4  # of lists in lists; PyTorch has none of more than 2
KINDS = ("parameter", "buffer")

# Arithmetic on sizes, which `torch.export` leaves to Python.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    f"operator.{name}": getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "getitem",
    )
} | {f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")}

# Known to the table of costs or made of what is, but with an effect, a view or a cost outside of what is looked at.
REFUSED = {
    "from_file": "reads a file",
    "set_?|set_data|data|lift": "exchanges the memory of a tensor",
    "resize.*": "resizes memory",
    "empty.*|new_empty.*": "shows what was in memory before",
    "requires_grad_|retain.*|get_gradients|rename.*": "changes what a tensor is and not what is in it",
    "record_stream": "reaches into a device's queue",
    "pin_memory|is_pinned|cuda|.*cudnn.*|miopen.*|mps.*|.*vulkan.*": "is one of another device",
    "mkldnn.*|to_mkldnn.*|xnnpack.*": "has a layout of its own",
    ".*sparse.*|smm|sspaddmm|coalesce|to_dense.*|c[or]+l?_indices.*": "has a layout of its own",
    ".*nested.*|segment_reduce|.*jagged.*": "has a layout of its own",
    "fbgemm.*|(de)?quantize.*|choose_qparams.*|q_.*|int_repr": "computes where the meter does not see it",
}
# Of the operations with an underscore, which are PyTorch's own business, those that models are written as.
INTERNAL = re.compile(
    "__(and|or|xor|lshift|rshift)__|_to_copy|_cast_.*|_assert_.*|_functional_assert_.*|_(log_|safe_)?softmax|"
    "_adaptive_avg_pool[23]d|_native_batch_norm_legit_no_training|_fused_rms_norm|_prelu_kernel|_weight_norm.*|"
    "_convolution|_convolution_mode|_conv_depthwise2d|_trilinear|_grouped_mm|_scaled_dot_product_.*|"
    "_native_multi_head_attention|_transformer_encoder_layer_fwd|_pad_circular|_pad_enum|_upsample_.*|"
    "_unsafe_(view|index)|_reshape_(alias|copy)|_shape_as_tensor|_local_scalar_dense|_unique2?|_stack|_dim_arange|"
    "_is_(all|any)_true|_conj.*|_neg_view.*|_embedding_bag"
)
# Overloads alone: numbers that are read as others hide parameters in each other; these read shapes from data unseen.
REFUSED_OVERLOADS = {
    "view.dtype": "reads numbers as others",
    "tensor_split.tensor_indices_or_sections": "takes shapes from data",
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_TYPED: dict[str, dict[str, Any]] = {  # what JSON has no value for: how it is written, and the values there are
    "dtype": {
        str(value).removeprefix("torch."): value
        for value in (
            torch.bool,
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.float64,
        )
    },
    "device": {"cpu": torch.device("cpu")},
    "layout": {"strided": torch.strided},
    "memory_format": {
        str(value).removeprefix("torch."): value
        for value in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    },
    "float": {"inf": math.inf, "-inf": -math.inf, "nan": math.nan},
}


class ProgramError(AlmaError):
    """Bytes that are no program, or a predictor that cannot be written as one."""


@dataclass(frozen=True)
class Reference:
    """The result of an operation, or a tensor or the input of the program, by name."""

    name: str


@dataclass(frozen=True)
class Node:
    """One operation: its name, the operation's, and its arguments."""

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """A predictor as data.

    Attributes:
        input: name of the raw inputs (n, ...).
        nodes: operations in the order in which they run.
        output: name of the logits.
        kinds: of each tensor, ``parameter`` or ``buffer``.
        tensors: by name. Tied ones are there once.
        aliases: names of tied tensors → the name under which they are there.
    """

    input: str
    nodes: tuple[Node, ...]
    output: str
    kinds: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    aliases: Mapping[str, str]

    @property
    def parameters(self) -> int:
        """Scalars in parameters, tied ones once: |θ|."""
        return sum(self.tensors[name].numel() for name, kind in self.kinds.items() if kind == "parameter")

    @property
    def buffers(self) -> int:
        """Scalars in all other tensors."""
        return sum(self.tensors[name].numel() for name, kind in self.kinds.items() if kind == "buffer")

    @property
    def literals(self) -> int:
        """Numbers among the arguments of operations: more than shapes and constants would be parameters in hiding."""
        return sum(_numbers([*node.args, *node.kwargs.values()]) for node in self.nodes)

    def graph_bytes(self) -> bytes:
        """Everything but the values of the tensors, as JSON: two programs of one structure have the same."""
        graph = {
            "version": VERSION,
            "input": self.input,
            "tensors": dict(self.kinds),
            "aliases": dict(self.aliases),
            "nodes": [
                [node.name, node.target, [_write(value) for value in node.args], _write_all(node.kwargs)]
                for node in self.nodes
            ],
            "output": self.output,
        }
        return json.dumps(graph, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def tensor_bytes(self) -> bytes:
        """The values of the tensors in the format safetensors."""
        return save({name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()})


def read(graph: bytes, tensors: bytes) -> Program:
    """Read what `Program.graph_bytes` and `Program.tensor_bytes` wrote; nothing is executed.

    Raises:
        ProgramError: the bytes are malformed or too large, an operation is not allowed, or an argument refers to what
            does not come before it.
    """
    if len(graph) > GRAPH_BYTES:
        raise ProgramError(f"a graph of {len(graph):,} bytes: at most {GRAPH_BYTES:,} are read")
    try:
        values = load(tensors)
    except (SafetensorError, ValueError, TypeError, OverflowError, RuntimeError, KeyError) as error:
        raise ProgramError(f"the tensors cannot be read: {str(error)[:200]}") from error
    try:
        found = json.loads(graph)
        if not isinstance(found, dict) or found["version"] != VERSION:
            raise ProgramError(f"not a program of version {VERSION}")
        program = Program(
            input=_name(found["input"]),
            nodes=tuple(_nodes(found["nodes"])),
            output=_name(found["output"]),
            kinds={_name(name): _kind(kind) for name, kind in found["tensors"].items()},
            tensors=values,
            aliases={_name(name): _name(other) for name, other in found["aliases"].items()},
        )
    except ProgramError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProgramError(f"the graph cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    _check(program)
    return program


@lru_cache(maxsize=4096)
def operation(target: str) -> Callable[..., Any]:
    """The function behind a target such as ``aten.linear.default``.

    Raises:
        ProgramError: there is none, or it is not allowed.
    """
    if target in ARITHMETIC:
        return ARITHMETIC[target]
    namespace, _, rest = target.partition(".")
    packet, _, overload = rest.partition(".")
    if namespace != "aten" or not _NAME.fullmatch(packet) or not _NAME.fullmatch(overload):
        raise ProgramError(
            f"operation {target[:100]!r}: only ATen's operations are allowed, such as aten.linear.default"
        )
    reason = next((why for names, why in REFUSED.items() if re.fullmatch(names, packet)), REFUSED_OVERLOADS.get(rest))
    if reason is not None:
        raise ProgramError(f"operation {target!r}: it {reason}, which a predictor has no use for")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, OpOverload):
        raise ProgramError(f"operation {target!r}: this PyTorch ({torch.__version__}) has none of this name")
    if packet.startswith("_") and not INTERNAL.fullmatch(packet):
        raise ProgramError(f"operation {target!r}: it is internal to PyTorch, and no predictor is written with it")
    name = found._schema.name + (f".{overload}" if overload != "default" else "")
    if not torch._C._dispatch_has_kernel(name):
        raise ProgramError(f"operation {target!r}: it is one of TorchScript's, and no tensor's")
    # A composite is made of other operations, which are looked up when it runs.
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    if not composite and rule(found) is None:
        raise ProgramError(f"operation {target!r}: its cost is unknown to the meter, so it cannot be scored")
    return found


def references(value: Any) -> Iterator[str]:
    """Names of all results that an argument refers to."""
    if isinstance(value, Reference):
        yield value.name
    elif isinstance(value, list | tuple):
        for part in value:
            yield from references(part)


def _numbers(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_numbers, value))
    return int(isinstance(value, int | float) and not isinstance(value, bool))


def _check(program: Program) -> None:
    """Every name is given once, and every reference is to what comes before."""
    if set(program.kinds) != set(program.tensors):
        raise ProgramError(
            f"tensors without a kind, or kinds without a tensor: {_some(set(program.kinds) ^ set(program.tensors))}"
        )
    for name, tensor in program.tensors.items():
        if tensor.dtype not in _TYPED["dtype"].values():
            raise ProgramError(f"tensor {name!r} of {tensor.dtype}: must be one of {', '.join(_TYPED['dtype'])}")
    for name, other in program.aliases.items():
        if other not in program.tensors or name in program.tensors:
            raise ProgramError(f"alias {name!r} of {other!r}: there is no such tensor, or the name is taken")
    known = {program.input, *program.tensors, *program.aliases}
    if len(known) != 1 + len(program.tensors) + len(program.aliases):
        raise ProgramError(f"input {program.input!r}: the name is taken by a tensor")
    for node in program.nodes:
        for name in references([*node.args, *node.kwargs.values()]):
            if name not in known:
                raise ProgramError(f"node {node.name!r} refers to {name!r}, which does not come before it")
        if node.name in known:
            raise ProgramError(f"node {node.name!r}: the name is taken")
        known.add(node.name)
    if program.output not in known:
        raise ProgramError(f"output {program.output!r}: there is no such result")


def _nodes(found: Any) -> Iterator[Node]:
    if not isinstance(found, list) or len(found) > NODES:
        raise ProgramError(f"nodes: must be a list of at most {NODES:,}")
    for name, target, args, kwargs in found:
        operation(str(target))
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ProgramError(f"node {name!r}: arguments are a list and a table")
        yield Node(
            _name(name), str(target), tuple(map(_read, args)), {_name(key): _read(v) for key, v in kwargs.items()}
        )


def _write_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _write(value) for name, value in values.items()}


def _write(value: Any) -> Any:
    """An argument as JSON: a reference or a typed value is a table of one entry."""
    if isinstance(value, Reference):
        return {"of": value.name}
    if isinstance(value, list | tuple):
        return [_write(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, values in _TYPED.items():
        for name, typed in values.items():
            if type(value) is type(typed) and value == typed:
                return {kind: name}
    raise ProgramError(f"argument {value!r} of type {type(value).__name__}: a program has no such values")


def _read(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        if depth == DEPTH:
            raise ProgramError(f"an argument of lists in lists: at most {DEPTH} deep are read")
        return [_read(part, depth + 1) for part in value]
    if isinstance(value, dict):
        ((kind, name),) = value.items()
        return Reference(_name(name)) if kind == "of" else _TYPED[kind][name]
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ProgramError(f"argument {value}: beyond 64 bits")
    return value


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise ProgramError(f"kind {value!r}: must be one of {', '.join(KINDS)}")
    return str(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ProgramError(f"name {str(value)[:100]!r}: letters, digits and underscores, at most 200")
    return value


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:5])
