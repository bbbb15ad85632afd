"""Small calls of free operations with several operands that PyTorch's public functions do not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .free_work import aten, floats, mask, plain_grid, whole


def _gates() -> list[Any]:
    gates, cell = floats(2, 8, grad=False), floats(2, 2, grad=False)
    three, hidden = floats(2, 6, grad=False), floats(2, 2, grad=False)
    bias, grad = floats(6, grad=False), floats(2, 2, grad=False)
    differentiable = aten._thnn_differentiable_lstm_cell_backward
    return [
        differentiable(grad, grad, gates, gates, floats(8, grad=False), floats(8, grad=False), cell, cell),
        aten._thnn_differentiable_gru_cell_backward(grad, three, three, hidden, bias, bias),
    ]


def _quantised() -> list[Tensor]:
    x, scale, zero = floats(4, 3).float().detach(), torch.tensor([0.1]), torch.tensor([0.0])
    x.requires_grad_()
    per_channel = (torch.full((4,), 0.1, requires_grad=True), torch.zeros(4, requires_grad=True), 0, 0, 255, 1.0)
    learnable = torch._fake_quantize_learnable_per_tensor_affine
    return [
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
        torch.fake_quantize_per_channel_affine(x, torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32), 0, 0, 255),
        learnable(x, scale.requires_grad_(), zero.requires_grad_(), 0, 255, 1.0),
        torch._fake_quantize_learnable_per_channel_affine(x, *per_channel),
    ]


def _optimizers() -> None:
    kinds = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD")
    for kind in kinds:
        for form in ("foreach", "fused"):
            if form == "foreach" or kind in {"SGD", "Adam", "AdamW", "Adagrad"}:
                parameters = [nn.Parameter(floats(3).detach()), nn.Parameter(floats(2).detach())]
                options: dict[str, Any] = {"momentum": 0.9} if kind in {"SGD", "RMSprop"} else {}
                optimizer = getattr(torch.optim, kind)(parameters, lr=0.1, **options, **{form: True})
                for _ in range(2):
                    for parameter in parameters:
                        parameter.grad = torch.rand_like(parameter)
                    optimizer.step()


def _scaled_gradients() -> list[Any]:
    scale, found = torch.ones(1), torch.zeros(1)
    gradients = [torch.rand(3), torch.rand(2)]
    return [
        aten._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale),
        aten._amp_update_scale_(scale, torch.zeros(1, dtype=torch.int32), found, 2.0, 0.5, 10),
    ]


def _internal() -> list[Any]:
    x, y, row = floats(4, 3, grad=False), floats(4, 3, grad=False), floats(3, grad=False)
    wide = floats(2, 3, 2, 2, grad=False)
    mean, deviation = floats(3, grad=False), floats(3, grad=False)
    grid = plain_grid(2, 2, 2, 2).detach()
    return [
        aten._add_relu(x, y),
        aten._stack([x, y]),
        aten._chunk_cat([x, y], 0, 2),
        aten.__irshift__(whole(4), whole(4)),
        aten.gelu_backward(x, y),
        aten._transform_bias_rescale_qkv(floats(2, 3, 12, grad=False), floats(12, grad=False), 2),
        aten.native_batch_norm(wide, row, row, mean, deviation, False, 0.1, 1e-5),
        aten._native_batch_norm_legit(wide, row, row, mean, deviation, True, 0.1, 1e-5),
        aten._native_batch_norm_legit_no_training(wide, row, row, mean, deviation, 0.1, 1e-5),
        aten._native_batch_norm_legit_functional(wide, row, row, mean, deviation, True, 0.1, 1e-5),
        aten._batch_norm_with_update(wide, row, row, mean, deviation, 0.1, 1e-5),
        aten._batch_norm_with_update_functional(wide, row, row, mean, deviation, 0.1, 1e-5),
        aten._batch_norm_no_update(wide, row, row, mean, deviation, 0.1, 1e-5),
        aten.batch_norm_update_stats(wide, mean, deviation, 0.1),
        aten._fused_rms_norm(x, [3], row, 1e-5),
        aten._standard_gamma_grad(x, y),
        aten._dirichlet_grad(x, y, y),
        aten.normal(x, y),
        aten.polar(x, y),
        aten.complex(x, y),
        aten.binomial(x * 5, y),
        aten.bernoulli(x, y),
        aten.native_batch_norm_backward(wide, wide + 1, row, mean, deviation, None, None, False, 1e-5, [True] * 3),
        aten.grid_sampler_2d_backward(wide, wide + 1, grid, 0, 0, True, [True, True]),
        aten._grid_sampler_2d_cpu_fallback(wide.float(), grid.float(), 0, 0, True),
        aten._grid_sampler_2d_cpu_fallback_backward(wide.float(), wide.float(), grid.float(), 0, 0, True),
        aten.huber_loss_backward(x, y, x, 0, 0.1),
        aten.value_selecting_reduction_backward(row, 0, whole(3), [4, 3], False),
        aten.native_dropout_backward(x, mask(4, 3), 2.0),
        aten.linspace(floats(grad=False), floats(grad=False), 5),
        aten.logspace(floats(grad=False), floats(grad=False), 5),
        aten.isclose(x, y),
        aten.copy(x, y),
        aten.fill(x, row[0]),
        aten.index_select_backward(x, [4, 3], 0, whole(4)),
        aten.gather_backward(x, x, 0, whole(4, 3), False),
        aten._histogramdd_from_bin_cts(x, [2, 2, 2], weight=floats(4, grad=False)),
        aten.glu_backward_jvp(x, x[:2], y, y[:2], y, 0),
        aten.cummaxmin_backward(x, y, whole(4, 3), 0),
        aten.index_copy(x, 0, torch.randperm(4), y),
        aten.quantize_per_tensor(x.float(), torch.ones(()), whole(), torch.quint8),
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x.float(), torch.ones(1), torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.long), 0, 255
        ),
        aten._weight_norm_interface(x, floats(4, 1, grad=False), 0),
        aten.ldexp(x, y),
        aten.float_power(x, y),
        aten.embedding_backward(x, whole(4), 2, -1, False, False),
        aten.rrelu_with_noise_functional(x - 0.5, y, 0.1, 0.3, True),
        aten._jagged_to_padded_dense_forward(x, [torch.tensor([0, 2, 4])], [2]),
        aten._cummax_helper(x, y, whole(4, 3), 0),
        aten._padded_dense_to_jagged_forward(floats(2, 2, 3, grad=False), [torch.tensor([0, 2, 4])]),
        aten.floor_divide(x, y),
        aten.true_divide(x, y),
        aten.xlogy(x, y),
        aten.rsub(x, y),
    ]


WORK: dict[str, Callable[[], Any]] = {
    "gates": _gates,
    "fake quantisation": _quantised,
    "optimizers": _optimizers,
    "gradient scaling": _scaled_gradients,
    "internal operations": _internal,
}
