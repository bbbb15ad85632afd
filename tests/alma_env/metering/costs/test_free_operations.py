"""Every free operation is tried: as a function of two operands, it must not be a matrix product.

An operation contracts two operands if one of its outputs is a sum of products of several elements of one operand with
several elements of the other. The test changes elements of the operands and looks at the mixed second differences of
the outputs. A contraction is charged, or it is bounded by the number of elements that are read or written.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils import _pytree as pytree

from alma_env.metering.costs import conditional_formulas, cost_table

from . import free_work, internal_work
from .contraction import Call, Recorder

# Operations that sum products in every call, and why they are free nevertheless. The others are charged on a condition.
FEW_PRODUCTS = {
    "aten::linalg_cross": "two products for each element of the output",
    "aten::glu_backward_jvp": "a few products for each element of the output",
    "aten::grid_sampler_2d": "up to 16 neighbours for each element of the output",
    "aten::_grid_sampler_2d_cpu_fallback": "4 neighbours for each element of the output",
    "aten::grid_sampler_3d": "8 neighbours for each element of the output",
}
WRITES_EACH_PRODUCT = {
    "aten::_softmax_backward_data": "the sum over a row is added to a product for each element",
    "aten::_weight_norm_interface_backward": "the sums are a part of the gradient of each element",
    "aten::_fake_quantize_learnable_per_tensor_affine_backward": "writes the gradient of each element, too",
    "aten::_fake_quantize_learnable_per_channel_affine_backward": "writes the gradient of each element, too",
}
READS_EACH_PRODUCT = {
    "aten::_ctc_loss_backward": "one term for each element of the table that the forward pass wrote; one operand is it",
}
# Operations with several operands that this test cannot call, and why they are free.
NOT_TRIED = {
    "another device or library executes them, and the tried operation with the same formula has the reason": """
        cudnn_batch_norm miopen_batch_norm batch_norm_elemt batch_norm_backward_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts mkldnn_adaptive_avg_pool2d_backward mkldnn_max_pool2d_backward
        max_pool2d_backward mkldnn_max_pool3d_backward _thnn_fused_gru_cell _thnn_fused_gru_cell_backward
        _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl cudnn_grid_sampler
        mkldnn::_reorder_mkldnn_rnn_layer_weight""",
    "it copies one operand; the other operand has the size, the layout, or the place": """
        _copy_from _copy_from_and_resize copy_sparse_to_sparse copy_to is_set_to resize_as resize_as_sparse set
        slice_inverse _unsafe_index _unsafe_masked_index _jagged_to_padded_dense_forward
        _padded_dense_to_jagged_forward _make_dual _nested_from_padded _nested_from_padded_and_nested_example
        _nested_from_padded_tensor _nested_select_backward _nested_view_from_buffer _nested_view_from_jagged
        _validate_compressed_sparse_indices _fused_sdp_choice _functional_assert_async _sink_tokens
        sparse_compressed_tensor _convert_indices_from_csr_to_coo _cudnn_rnn_flatten_weight
        _nested_tensor_from_tensor_list lu_unpack""",
    "it repeats, adds or scales the elements of one operand at the positions that the other one has": """
        _nested_sum_backward _nested_tensor_softmax_with_shape _sparse_sum_backward bincount""",
    "it casts single values, with a scale for each": """
        _empty_per_channel_affine_quantized _make_per_channel_quantized_tensor quantize_per_channel
        quantize_per_tensor dequantize _fused_moving_avg_obs_fq_helper
        _fused_moving_avg_obs_fq_helper_functional""",
    "it compares, and stores the larger element": "_cummin_helper _histogramdd_from_bin_tensors",
    "it draws random numbers": """
        _philox_key_fold_in _philox_normal _philox_uniform randint_like rngprims::philox_rand""",
    "processes add their gradients, or exchange them": """
        c10d::_allgather_base c10d::_reduce_scatter_base c10d::allgather c10d::allgather_coalesced
        c10d::allgather_into_tensor_coalesced c10d::alltoall c10d::alltoall_base c10d::gather
        c10d::reduce_scatter c10d::reduce_scatter_tensor_coalesced c10d::scatter c10d::allreduce
        c10d::allreduce_coalesced c10d::broadcast c10d::recv c10d::recv_any_source c10d::reduce c10d::send
        inductor::accumulate_grad""",
}  # fmt: skip
# Arguments that are positions, lengths or flags.
WHOLE = {
    *("index", "indices", "target", "targets", "offsets", "lengths", "input_lengths", "target_lengths", "batch_sizes"),
    *("mask", "repeats", "size", "sizes", "max_indices", "is_target"),
}


def family(operation: OpOverload) -> str:
    """The name that an operation shares with its forms in place, on lists, and with a copied result."""
    namespace, _, base = operation._schema.name.partition("::")
    base = base if base.startswith("__") else base.removesuffix("_")
    base = base.removeprefix("_foreach_").removesuffix("_copy")
    return f"{'aten' if namespace == 'prims' else namespace}::{base}"


def free_operations() -> Iterator[OpOverload]:
    """Free operations with several operands, without the form that writes to `out`.

    Composite operations are left out: their parts are looked up one by one.
    """
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas()}):
        namespace, _, base = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace, None), base, None)
        for overload in packet.overloads() if isinstance(packet, OpOverloadPacket) else ():
            operation = getattr(packet, overload)
            full = cost_table.qualified_name(operation)
            operands = [a for a in operation._schema.arguments if "Tensor" in str(a.type) and not a.is_out]
            # An operation of the family `_foreach_` treats the elements of a list one by one.
            lists = any("List" in str(operand.type) for operand in operands) and not base.startswith("_foreach_")
            if (
                isinstance(cost_table.rule(operation), str)
                and not any(argument.is_out for argument in operation._schema.arguments)
                and torch._C._dispatch_has_kernel(full)
                and not torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
                and (lists or sum(operand.name not in WHOLE for operand in operands) > 1)
            ):
                yield operation


def pointwise_calls(operation: OpOverload) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Calls of an operation that PyTorch tags as pointwise; its operands are broadcast."""
    for whole, shapes in ((False, [(4, 3), (1, 3), (4, 1)]), (True, [(4, 3), (1, 3), (4, 1)])):
        sizes = iter(shapes * 2)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in operation._schema.arguments:
            kind = str(argument.type)
            value: Any = argument.default_value if argument.has_default_value() else 0.5
            if "Tensor" in kind:
                shape = next(sizes)
                number = torch.randint(1, 9, shape) if whole else torch.rand(shape, dtype=torch.float64) + 0.1
                value = [number] if "List" in kind else number
            elif not argument.has_default_value():
                value = {"number": 2, "int": 1, "List[number]": [2], "bool": False}.get(kind)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        yield args, kwargs


@functools.cache
def recorded() -> Recorder:
    """The calls of the free operations in `free_work`, `internal_work` and their backward passes."""
    recorder = Recorder()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with recorder:
            for work in (free_work.WORK | internal_work.WORK).values():
                free_work.differentiated(work)
        for operation in free_operations():
            if torch.Tag.pointwise in operation.tags and not recorder.calls.get(operation):
                with recorder:
                    for args, kwargs in pointwise_calls(operation):
                        try:
                            operation(*args, **kwargs)
                        except (RuntimeError, NotImplementedError, ValueError, TypeError):
                            recorder.calls.pop(operation, None)
                        else:
                            break
    return recorder


def test_every_free_operation_of_two_operands_is_tried_or_has_a_reason() -> None:
    listed = {name if "::" in name else f"aten::{name}" for names in NOT_TRIED.values() for name in names.split()}
    needed = {family(operation) for operation in free_operations()}
    tried = {family(operation) for operation, calls in recorded().calls.items() if calls}
    conditional = set(conditional_formulas.CONDITIONS)
    assert sorted(needed - tried - listed - conditional) == []
    assert len(needed & tried) > 200


def test_no_free_operation_is_a_matrix_product() -> None:
    contracting: dict[str, int] = {}
    for operation, calls in recorded().calls.items():
        name = family(operation)
        for _, leaves, spec in calls:
            call = Call(operation, leaves, spec)
            products = call.products()
            if products < 2 or name in conditional_formulas.CONDITIONS:
                continue
            contracting[name] = products
            if name in FEW_PRODUCTS:
                assert products <= 16, name
            elif name in WRITES_EACH_PRODUCT:
                most = max(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))
                assert call.changed({}).numel() >= most, f"{name} sums {products} products"
            else:
                assert name in READS_EACH_PRODUCT, f"{name} sums {products} products"
    assert set(contracting) >= {"aten::linalg_cross", "aten::grid_sampler_2d", "aten::_softmax_backward_data"}


def test_the_trial_finds_a_matrix_product() -> None:
    def call(operation: OpOverload, *args: Any) -> Call:
        leaves, spec = pytree.tree_flatten((args, {}))
        return Call(operation, leaves, spec)

    a, b = torch.rand(4, 3), torch.rand(3, 2)
    assert call(torch.ops.aten.mm.default, a, b).products() == 3
    assert call(torch.ops.aten.mul.Tensor, a, a).products() == 1
    weights, table = torch.rand(4), torch.rand(5, 3)
    bag = (table, torch.tensor([0, 1, 2, 4]), torch.tensor([0, 2]), False, 0, False, weights)
    assert call(torch.ops.aten._embedding_bag.default, *bag).products() == 2


def test_the_gradients_of_normalisation_are_charged_without_the_input_gradient_on_every_device() -> None:
    x, weight = torch.ones(5, 3), torch.ones(3)
    cases = {
        "native_batch_norm_backward": (x, x),
        "batch_norm_backward": (x, x),
        "miopen_batch_norm_backward": (x, x),
        "cudnn_batch_norm_backward": (x, x),
        "native_layer_norm_backward": (x, x),
        "native_group_norm_backward": (x, x),
        "_fused_rms_norm_backward": (x, x),
        "grid_sampler_3d_backward": (x, x),
    }
    for name, operands in cases.items():
        formula = conditional_formulas.CONDITIONS[f"aten::{name}"]
        assert formula((None, weight, weight), *operands) == 2 * x.numel()
        assert formula((x, weight, weight), *operands) == 0
        assert formula((None, None, weight), *operands) == 0
    assert conditional_formulas.CONDITIONS["aten::cudnn_grid_sampler_backward"]((x, weight), x, x, x) == 0
    reduce = conditional_formulas.CONDITIONS["aten::batch_norm_backward_reduce"]
    assert reduce((weight,) * 4, x, x, weight, weight) == 0
    assert reduce((weight,) * 4, x[:, :1].expand(5, 3), weight.expand(5, 3), weight, weight) == 2 * 15


def test_the_places_of_a_tensor_in_memory() -> None:
    places = conditional_formulas.stored_elements
    x = torch.zeros(12)
    assert places(x.view(3, 4).T) == places(x) == 12
    assert places(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)) == 96
    assert places(x[::2].expand(5, 6)) == 6
    assert places(x.unfold(0, 5, 1)) == 12
    assert places(x.as_strided((3, 2, 2), (1, 1, 6))) == 8
    assert places(x.as_strided((3, 3), (2, 3))) == len({2 * i + 3 * j for i in range(3) for j in range(3)})
    assert places(torch.eye(3).to_sparse()) == 9
    assert places(torch.zeros(0, 3).T) == 0
