"""Work under a name that the table of costs knows: operations and kernels that Python code gave to PyTorch."""

from __future__ import annotations

import pytest
import torch

from alma_env import UnknownCostError, flops
from alma_env.metering import count
from alma_env.metering.costs.own_kernels import has_own_kernel

from .gallery import attack, case

UNKNOWN = "the cost is unknown: an error"
SAME = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


def product(a, b):
    return torch.mm(a, b)


def a_new_overload(library):
    library.define("relu.product_of_this_test(Tensor a, Tensor b) -> Tensor")
    library.impl("relu.product_of_this_test", product, "CompositeExplicitAutograd")
    return lambda: torch.ops.aten.relu.product_of_this_test(SAME, SAME)


def a_new_elementwise_operation(library):
    library.define("product_of_this_test(Tensor a, Tensor b) -> Tensor", tags=torch.Tag.pointwise)
    library.impl("product_of_this_test", product, "CPU")
    return lambda: torch.ops.aten.product_of_this_test(SAME, SAME)


def another_kernel(library):
    library.impl("erfinv", lambda x: product(x, x), "CPU")
    return lambda: torch.erfinv(SAME)


def a_custom_operation(library):
    name, tags = "prims::relu", (torch.Tag.pointwise,)

    @torch.library.custom_op(name, mutates_args=(), tags=tags)
    def relu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return product(a, b)

    return lambda: relu(SAME, SAME)


@pytest.fixture
def library():
    found = torch.library.Library("aten", "FRAGMENT")
    yield found
    found._destroy()
    flops._clear_caches()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        case("multiplies by a new overload of an activation", UNKNOWN, a_new_overload),
        case("multiplies by a new operation that claims to be elementwise", UNKNOWN, a_new_elementwise_operation),
        case("replaces the kernel of an elementwise operation", UNKNOWN, another_kernel),
        case("multiplies by an operation of its own in a namespace of PyTorch", UNKNOWN, a_custom_operation),
    ],
)
def test_kernels_of_ones_own_are_unknown(library, make):
    call = make(library)
    flops._clear_caches()
    torch.testing.assert_close(call(), SAME @ SAME)
    with pytest.raises(UnknownCostError):
        count(call)


@attack("uses only operations of PyTorch itself", "none of them counts as its own")
def test_no_operation_of_pytorch_has_a_kernel_of_ones_own():
    own = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), base, None) if namespace in ("aten", "prims") else None
        if packet is not None and (overload or "default") in packet.overloads():
            operation = getattr(packet, overload or "default")
            known = flops._free_reason(f"{namespace}::{base}") or f"{namespace}::{base}" in flops.FORMULAS
            mine = "of_this_test" in name or name in ("prims::relu", "aten::erfinv")
            if known and not mine and has_own_kernel(operation):
                own.append(name)
    assert own == []
