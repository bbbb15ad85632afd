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

from alma_env.metering.cost_table import rule
from leaderboard.errors import ProgramError

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
}
# The allowed operations among those with an underscore, which are internal to PyTorch: models are traced to these.
INTERNAL = re.compile(
    "__(and|or|xor|lshift|rshift)__|_to_copy|_cast_.*|_assert_.*|_functional_assert_.*|_(log_|safe_)?softmax|"
    "_adaptive_avg_pool[23]d|_native_batch_norm_legit_no_training|_fused_rms_norm|_prelu_kernel|_weight_norm.*|"
    "_convolution|_convolution_mode|_conv_depthwise2d|_trilinear|_grouped_mm|_scaled_dot_product_.*|"
    "_native_multi_head_attention|_transformer_encoder_layer_fwd|_pad_circular|_pad_enum|_upsample_.*|"
    "_unsafe_(view|index)|_reshape_(alias|copy)|_shape_as_tensor|_local_scalar_dense|_unique2?|_stack|_dim_arange|"
    "_is_(all|any)_true|_conj.*|_neg_view.*|_embedding_bag"
)
# Refused overloads of allowed operations. A reinterpreted tensor can hide parameters inside other parameters.
REFUSED_OVERLOADS = {
    "view.dtype": "reinterprets numbers as another type",
    "tensor_split.tensor_indices_or_sections": "takes shapes from data",
}

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
    if packet.startswith("_") and not INTERNAL.fullmatch(packet):
        raise ProgramError(f"operation {target!r}: internal to PyTorch; use a public operation")
    name = found._schema.name + (f".{overload}" if overload != "default" else "")
    if not torch._C._dispatch_has_kernel(name):
        raise ProgramError(f"operation {target!r}: belongs to TorchScript, not to tensors; use another operation")
    # A composite operation calls other operations, whose costs are looked up when it runs.
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    if not composite and rule(found) is None:
        raise ProgramError(f"operation {target!r}: its cost is unknown to the meter; use another operation")
    return found
