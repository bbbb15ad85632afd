"""Every ATen operation is either allowed or refused with a reason."""

from __future__ import annotations

import contextlib

import pytest
import torch

from leaderboard.errors import ProgramError
from leaderboard.program.operations import operation


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("builtins.eval", "only ATen's operations"),
        ("operator.attrgetter", "only ATen's operations"),
        ("aten.nothing_like_this.default", "unknown to this PyTorch"),
        ("aten.__class__.default", "unknown to this PyTorch"),
        ("aten.linalg_matrix_exp.default", "its cost is unknown"),
        ("aten.linalg_eig.default", "not among the operations"),
        ("aten.from_file.default", "reads a file"),
        ("aten.set_.source_Storage", "exchanges the memory"),
        ("aten.set_data.default", "exchanges the memory"),
        ("aten.data.default", "exchanges the memory"),
        ("aten._resize_output_.default", "internal to PyTorch"),
        ("aten.empty.memory_format", "uninitialized memory"),
        ("aten.new_empty_strided.default", "uninitialized memory"),
        ("aten.fbgemm_linear_fp16_weight_fp32_activation.default", "where the meter does not see it"),
        ("aten.fbgemm_linear_int8_weight.default", "where the meter does not see it"),
        ("aten.quantized_lstm_cell.default", "where the meter does not see it"),
        ("aten.view.dtype", "reinterprets numbers"),
        ("aten.tensor_split.tensor_indices_or_sections", "takes shapes from data"),
        ("aten._foreach_add.ScalarList", "internal to PyTorch"),
        ("aten._sparse_coo_tensor_unsafe.default", "special memory layout"),
        ("aten._backward.default", "internal to PyTorch"),
        ("aten.save.default", "belongs to TorchScript"),
        ("aten.manual_seed.default", "belongs to TorchScript"),
    ],
)
def test_an_unknown_operation_or_one_with_hidden_effects_or_costs_is_refused(target, message):
    with pytest.raises(ProgramError, match=message):
        operation(target)


def test_every_operation_of_pytorch_is_allowed_or_refused():
    names = {
        f"aten.{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    }
    allowed = 0
    for name in names:
        with contextlib.suppress(ProgramError):
            operation(name)
            allowed += 1
    assert 500 < allowed < 1000 < len(names)
