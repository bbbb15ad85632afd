"""Matrix products, convolutions and whole networks cost what is computed by hand, whatever the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alma_env.metering import count

from .costs import cost, forward_and_backward, randn, train

PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], int]] = {
    "mm": (torch.mm, [(2, 3), (3, 5)], 2 * 3 * 5),
    "matmul of batches": (torch.matmul, [(4, 2, 3), (3, 5)], 4 * 2 * 3 * 5),
    "matmul of vectors": (torch.matmul, [(7,), (7,)], 7),
    "matmul broadcast": (torch.matmul, [(4, 1, 2, 3), (6, 3, 5)], 4 * 6 * 2 * 3 * 5),
    "addmm": (torch.addmm, [(2, 5), (2, 3), (3, 5)], 2 * 3 * 5),
    "bmm": (torch.bmm, [(4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "baddbmm": (torch.baddbmm, [(4, 2, 5), (4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "addbmm": (torch.addbmm, [(2, 5), (4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "mv": (torch.mv, [(2, 3), (3,)], 6),
    "addmv": (torch.addmv, [(2,), (2, 3), (3,)], 6),
    "dot": (torch.dot, [(7,), (7,)], 7),
    "vdot": (torch.vdot, [(7,), (7,)], 7),
    "addr": (torch.addr, [(2, 3), (2,), (3,)], 6),
    "linear": (F.linear, [(4, 3), (5, 3), (5,)], 4 * 3 * 5),
    "linear in three dimensions": (F.linear, [(2, 4, 3), (5, 3)], 2 * 4 * 3 * 5),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(4, 2, 3), (4, 5, 3)], 4 * 2 * 3 * 5),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [(2, 3, 4), (3, 4, 5)], 2 * 3 * 4 * 5),
    "bilinear": (F.bilinear, [(4, 3), (4, 5), (2, 3, 5)], 4 * 2 * 3 * 5),
    "chain_matmul": (
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        [(2, 3), (3, 4), (4, 5)],
        2 * 3 * 4 + 2 * 4 * 5,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_matrix_product_costs_two_flops_for_each_multiply_add(name: str) -> None:
    function, shapes, multiply_adds = PRODUCTS[name]
    for device in ("cpu", "meta"):
        operands = [randn(*shape, device=device) for shape in shapes]
        assert count(function, *operands).total == 2 * multiply_adds
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                assert count(function, *operands).total == 2 * multiply_adds


@pytest.mark.parametrize(
    "name", ["mm", "bmm", "addmm", "baddbmm", "linear", "einsum", "tensordot", "matmul of batches"]
)
def test_the_gradient_of_a_product_costs_one_product_for_each_operand(name: str) -> None:
    function, shapes, multiply_adds = PRODUCTS[name]
    operands = [randn(*shape, grad=True) for shape in shapes]
    charge = count(lambda: train(function(*operands)))
    assert forward_and_backward(charge) == (2 * multiply_adds, 4 * multiply_adds)
    first_fixed = [operand.detach() if i == 0 else operand for i, operand in enumerate(operands)]
    if len(shapes) == 2 or name == "linear":
        assert forward_and_backward(count(lambda: train(function(*first_fixed)))) == (
            2 * multiply_adds,
            2 * multiply_adds,
        )


def test_out_and_in_place_forms_cost_the_same() -> None:
    a, b, out = randn(2, 3), randn(3, 5), randn(2, 5)
    assert count(lambda: torch.mm(a, b, out=out)).total == count(lambda: out.addmm_(a, b)).total == 2 * 30


def test_a_list_of_products_costs_the_sum_of_the_products() -> None:
    if not hasattr(torch.ops.aten, "_foreach_mm"):
        pytest.skip("this PyTorch has no _foreach_mm")
    args = ([randn(2, 3), randn(4, 5)], [randn(3, 5), randn(5, 6)])
    assert cost(torch.ops.aten._foreach_mm.default, *args) == 2 * (2 * 3 * 5 + 4 * 5 * 6)


def test_grouped_products_cost_the_sum_of_their_rows() -> None:
    op = torch.ops.aten._grouped_mm.default
    rows, depth, columns, groups = 8, 16, 24, 3
    assert cost(op, randn(rows, depth), randn(groups, depth, columns)) == 2 * rows * depth * columns
    assert cost(op, randn(rows, depth), randn(depth, columns)) == 2 * rows * depth * columns
    assert cost(op, randn(groups, rows, depth), randn(depth, columns)) == 2 * rows * depth * columns
    both = (randn(groups, rows, depth), randn(groups, depth, columns))
    assert cost(op, *both) == 2 * groups * rows * depth * columns


def test_a_sparse_product_costs_its_stored_elements() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.eye(6)
        for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
            assert count(lambda sparse=sparse: sparse @ randn(6, 4)).total == 2 * 6 * 4
        left = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]).to_sparse()
        right = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]).to_sparse()
        for product in (torch.matmul, torch.sparse.mm):
            assert count(lambda product=product: product(left, right)).total == 2 * (1 * 2 + 0 * 1 + 2 * 1)
        sample = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]).to_sparse_csr()
        sampled = count(lambda: torch.sparse.sampled_addmm(sample, randn(2, 5), randn(5, 3)))
        assert sampled.total == 2 * 3 * 5  # three stored elements, each a product of five pairs


def test_outer_products_and_elementwise_products_are_free() -> None:
    assert count(lambda: torch.outer(randn(3), randn(4))).total == 0
    assert count(lambda: (randn(3, 4) * randn(3, 4)).sum(1)).total == 0


def convolution_multiply_adds(out: Tensor, weight: Tensor) -> int:
    """The size of one filter for each output element."""
    return out.numel() * weight[0].numel()


CONVOLUTIONS: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "1d": (nn.Conv1d, (2, 4, 11), {"kernel_size": 3}),
    "2d": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "padding": 1}),
    "2d, stride and dilation": (nn.Conv2d, (2, 4, 11, 9), {"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 2}),
    "2d, groups": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "groups": 2}),
    "2d, depthwise": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "groups": 4}),
    "2d, no bias": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": (1, 3), "bias": False}),
    "3d": (nn.Conv3d, (2, 4, 5, 6, 7), {"kernel_size": 3}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_convolution_and_each_of_its_gradients_cost_one_filter_per_output_element(name: str, device: str) -> None:
    kind, shape, options = CONVOLUTIONS[name]
    layer = kind(4, 8, **options).to(device)
    x = randn(*shape, grad=True, device=device)
    forward = 2 * convolution_multiply_adds(layer(x), layer.weight)  # type: ignore[arg-type]
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, 2 * forward)
    assert forward_and_backward(count(lambda: train(layer(x.detach())))) == (forward, forward)
    layer.requires_grad_(False)
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, forward)
    with torch.inference_mode():
        assert count(layer, x).total == forward


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
def test_a_transposed_convolution_costs_one_filter_per_input_element(kind: type[nn.Module], groups: int) -> None:
    layer = kind(4, 6, 3, stride=2, groups=groups)
    dimensions = int(kind.__name__[-2])
    x = randn(2, 4, *(5 + i for i in range(dimensions)), grad=True)
    forward = 2 * x.numel() * 3**dimensions * 6 // groups
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, 2 * forward)


def test_a_grouped_convolution_costs_as_much_as_separate_convolutions() -> None:
    together, apart = nn.Conv2d(5 * 3, 5 * 4, 3, groups=5), [nn.Conv2d(3, 4, 3) for _ in range(5)]
    inputs = [randn(2, 3, 8, 8, grad=True) for _ in range(5)]
    joined = torch.cat([x.detach() for x in inputs], 1).requires_grad_()
    one = count(lambda: train(together(joined)))
    many = count(lambda: [train(layer(x)) for layer, x in zip(apart, inputs, strict=True)])
    assert one == many


def test_a_second_derivative_of_a_convolution_is_counted() -> None:
    layer, x = nn.Conv2d(2, 3, 3), randn(1, 2, 6, 6, grad=True)

    def twice() -> None:
        (gradient,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()

    assert count(twice).total > 3 * count(layer, x).total


def test_a_training_step_of_an_mlp_costs_three_forward_passes_less_the_input_gradient() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    x, y = randn(108, 1, 28, 28), torch.randint(10, (108,))
    layers = [784 * 32, 32 * 32, 32 * 10]
    forward = 2 * 108 * sum(layers)
    assert sum(layers) == 26_432
    charge = count(lambda: F.cross_entropy(net(x), y).backward())
    assert forward_and_backward(charge) == (forward, 2 * forward - 2 * 108 * layers[0])


def test_a_training_step_of_a_convolutional_network_by_hand() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    x, y = randn(5, 3, 32, 32), torch.randint(10, (5,))
    first, second, last = 32 * 32 * 4 * 27, 16 * 16 * 8 * 36, 80
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    forward = 2 * 5 * (first + second + last)
    assert forward_and_backward(count(step)) == (forward, 2 * forward - 2 * 5 * first)
    channels_last = net.to(memory_format=torch.channels_last)
    assert sum(count(channels_last, x.to(memory_format=torch.channels_last)).forward.values()) == forward
    assert count(net.to("meta"), x.to("meta")).total == forward
