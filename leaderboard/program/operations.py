"""The operations of a program: functional ATen operations with a known cost, and arithmetic on sizes."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload

from alma_env.metering.costs.cost_table import rule
from leaderboard.errors import ProgramError
from leaderboard.program.allowed_operations import ALLOWED

# Arithmetic on sizes, which `torch.export` writes as Python functions.
_OPERATORS = (
    *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg"),
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem"),
)
ARITHMETIC: dict[str, Callable[..., Any]] = {f"operator.{name}": getattr(operator, name) for name in _OPERATORS} | {
    f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc", "sqrt")
}

# Operations with a known cost, or composed of such operations, that have an effect, a view or a cost which the checks
# cannot see: patterns of names, and the reason.
REFUSED = {
    "from_file": "reads a file",
    "set_?|set_data|data|lift": "exchanges the memory of a tensor",
    "resize.*": "resizes memory",
    "empty.*|new_empty.*": "returns uninitialized memory",
    "requires_grad_|retain.*|get_gradients|rename.*": "changes the attributes of a tensor, not its values",
    "record_stream": "uses the queue of a device",
    "pin_memory|is_pinned|cuda|.*cudnn.*|miopen.*|mps.*|.*vulkan.*": "needs another device",
    "mkldnn.*|to_mkldnn.*|xnnpack.*": "uses a special memory layout",
    ".*sparse.*|smm|sspaddmm|coalesce|to_dense.*|c[or]+l?_indices.*": "uses a special memory layout",
    ".*nested.*|segment_reduce|.*jagged.*": "uses a special memory layout",
    "fbgemm.*|(de)?quantize.*|choose_qparams.*|q_.*|int_repr": "computes where the meter does not see it",
    "[a-z].*_backward.*|.*_jvp": "is a gradient, whose indices and sizes are not checked",
    "_unsafe_.*|unsafe_.*|as_strided.*": "does not check its indices and sizes",
    "fractional_max_pool.*|max_unpool.*|_grouped_mm|embedding_bag|_embedding_bag.*|_pad_enum": (
        "does not check its indices and sizes"
    ),
    "_native_multi_head.*|_transformer_encoder.*|lu_solve|ctc_loss|histc|histogram.*|bincount": (
        "does not check its indices and sizes"
    ),
    "size|numel|dim|stride|storage_offset|sym_numel|sym_stride|sym_storage_offset|_shape_as_tensor|is_.*": (
        "makes numbers of the size of a tensor"
    ),
}
# Refused overloads of allowed operations. A reinterpreted tensor can hide parameters inside other parameters.
REFUSED_OVERLOADS = {
    "view.dtype": "reinterprets numbers as another type",
    "tensor_split.tensor_indices_or_sections": "takes shapes from data",
    "repeat_interleave.Tensor": "takes shapes from data",
    **dict.fromkeys(
        ("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data"), "takes lengths of sequences that it does not check"
    ),
}

SIZES = "aten.sym_size."  # operations that return the size of a tensor as a number

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@lru_cache(maxsize=4096)
def operation(target: str) -> Callable[..., Any]:
    """Return the function of a target such as ``aten.linear.default``.

    Raises:
        ProgramError: the target does not exist, or is not allowed.
    """
    if target in ARITHMETIC:
        return ARITHMETIC[target]
    namespace, _, rest = target.partition(".")
    packet, _, overload = rest.partition(".")
    if namespace != "aten" or not NAME.fullmatch(packet) or not NAME.fullmatch(overload):
        raise ProgramError(
            f"operation {target[:100]!r}: only ATen's operations are allowed; use one such as aten.linear.default"
        )
    reason = next((why for names, why in REFUSED.items() if re.fullmatch(names, packet)), REFUSED_OVERLOADS.get(rest))
    if reason is not None:
        raise ProgramError(f"operation {target!r}: not allowed because it {reason}; write the predictor without it")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, OpOverload):
        raise ProgramError(f"operation {target!r}: unknown to this PyTorch ({torch.__version__}); use another")
    if packet.startswith("_") and packet not in ALLOWED:
        raise ProgramError(f"operation {target!r}: internal to PyTorch; use a public operation")
    name = found._schema.name + (f".{overload}" if overload != "default" else "")
    if not torch._C._dispatch_has_kernel(name):
        raise ProgramError(f"operation {target!r}: belongs to TorchScript, not to tensors; use another operation")
    # A composite operation calls other operations, whose costs are looked up when it runs.
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    if not composite and rule(found) is None:
        raise ProgramError(f"operation {target!r}: its cost is unknown to the meter; use another operation")
    if not {packet, packet.removesuffix("_")} & ALLOWED or "out" in overload:
        raise ProgramError(
            f"operation {target!r}: not among the operations to which layers are traced; use another one"
        )
    return found
