"""Free operations that contract: matrix products by operations that the meter counts as free."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from alma_env.metering import count

from .gallery import attack, case

aten = torch.ops.aten
M, K, N = 4, 5, 6
CHARGED = "the charge of the matrix product"


@pytest.fixture
def a():
    return torch.rand(M, K, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def b():
    return torch.rand(K, N, generator=torch.Generator().manual_seed(1))


def rows(a):
    """Look up all rows of the other operand for each row of `a`."""
    return torch.arange(a.shape[1]).repeat(len(a)), torch.arange(len(a)) * a.shape[1]


def weighted_bags(a, b):
    return F.embedding_bag(*rows(a)[:1], b, rows(a)[1], mode="sum", per_sample_weights=a.flatten())


def weighted_bags_without_gradients(a, b):
    with torch.inference_mode():
        return weighted_bags(a, b)


def forward_only(a, b):
    return aten._embedding_bag_forward_only(b, *rows(a), False, 0, False, a.flatten())[0]


def gradient_of_a_table(a, b):
    # Bag i has the gradient b[i] and adds a[j, i] · b[i] to row j of the table.
    table = torch.zeros(M, N, requires_grad=True)
    lookups, starts = torch.arange(M).repeat(K), torch.arange(K) * M
    out = F.embedding_bag(lookups, table, starts, mode="sum", per_sample_weights=a.T.flatten())
    return torch.autograd.grad(out, table, b)[0]


def gradient_of_a_table_by_name(a, b):
    lookups, bags = torch.arange(M).repeat(K), torch.arange(K).repeat_interleave(M)
    sizes = torch.full((K,), M)
    empty = torch.zeros(0, dtype=torch.long)
    return aten._embedding_bag_dense_backward(b, lookups, bags, sizes, empty, M, False, 0, a.T.flatten())


def gradient_of_the_weights(a, b):
    table, weights = b.T.contiguous(), torch.ones(M * N, requires_grad=True)
    lookups, starts = torch.arange(N).repeat(M), torch.arange(M) * N
    out = F.embedding_bag(lookups, table, starts, mode="sum", per_sample_weights=weights)
    return torch.autograd.grad(out, weights, a)[0].view(M, N)


def linear_combination(a, b):
    return aten._compute_linear_combination(b, a)


def expanded(a, b):
    """Both operands as (k, m, n), without a copy."""
    return a.T[:, :, None].expand(K, M, N), b[:, None, :].expand(K, M, N)


def gradient_of_layer_norm(a, b):
    left, right = expanded(a, b)
    mean, deviation = torch.zeros(K, 1, 1), torch.ones(K, 1, 1)
    weight = torch.ones(M, N)
    mask = [False, True, False]
    return aten.native_layer_norm_backward(left, right, [M, N], mean, deviation, weight, None, mask)[1]


def gradient_of_batch_norm(a, b):
    left, right = (operand.reshape(K, M * N) for operand in expanded(a, b))
    weight = torch.ones(M * N, requires_grad=True)
    out = F.batch_norm(right, torch.zeros(M * N), torch.ones(M * N), weight, eps=0.0)
    return torch.autograd.grad(out, weight, left)[0].view(M, N)


def gradient_of_group_norm(a, b):
    left, right = (operand.reshape(K, M * N, 1) for operand in expanded(a, b))
    mean, deviation = torch.zeros(K, 1), torch.ones(K, 1)
    mask = [False, True, False]
    weight = torch.ones(M * N)
    return aten.native_group_norm_backward(left, right, mean, deviation, weight, K, M * N, 1, 1, mask)[1].view(M, N)


def gradient_of_sampling_points(a, b):
    # The gradient of a point between two pixels is the sum over channels of (gradient · difference of the pixels).
    image = torch.stack([torch.zeros_like(b), b]).permute(1, 2, 0).reshape(1, K, 1, 2 * N)
    columns = torch.arange(N) * 2 + 0.5
    grid = torch.zeros(1, M, N, 2)
    grid[..., 0] = 2 * columns / (2 * N - 1) - 1
    left = a.T[None, :, :, None].expand(1, K, M, N)
    found = aten.grid_sampler_2d_backward(left, image, grid, 0, 0, True, [False, True])[1]
    return found[0, :, :, 0] / ((2 * N - 1) / 2)


def gradient_of_sampling_points_in_space(a, b):
    image = torch.stack([torch.zeros_like(b), b]).permute(1, 2, 0).reshape(1, K, 1, 1, 2 * N)
    grid = torch.zeros(1, 1, M, N, 3)
    grid[..., 0] = 2 * (torch.arange(N) * 2 + 0.5) / (2 * N - 1) - 1
    left = a.T[None, :, None, :, None].expand(1, K, 1, M, N)
    found = aten.grid_sampler_3d_backward(left, image, grid, 0, 0, True, [False, True])[1]
    return found[0, 0, :, :, 0] / ((2 * N - 1) / 2)


@pytest.mark.parametrize(
    "product",
    [
        case("multiplies matrices by an embedding bag with a weight for each look-up", CHARGED, weighted_bags),
        case("the same in inference mode", CHARGED, weighted_bags_without_gradients),
        case("calls the forward pass of the embedding bag by its internal name", CHARGED, forward_only),
        case("multiplies by the gradient of an embedding bag's table", CHARGED, gradient_of_a_table),
        case("calls this gradient by its internal name", CHARGED, gradient_of_a_table_by_name),
        case("multiplies by the gradient of an embedding bag's weights", CHARGED, gradient_of_the_weights),
        case("multiplies by the linear combination of the matrix exponential", CHARGED, linear_combination),
        case(
            "multiplies by the gradient of layer norm's weight, on expanded operands", CHARGED, gradient_of_layer_norm
        ),
        case(
            "multiplies by the gradient of batch norm's weight, with given statistics", CHARGED, gradient_of_batch_norm
        ),
        case("multiplies by the gradient of group norm's weight", CHARGED, gradient_of_group_norm),
        case("multiplies by the gradient of a grid's sampling points", CHARGED, gradient_of_sampling_points),
        case("the same for a grid in space", CHARGED, gradient_of_sampling_points_in_space),
    ],
)
def test_a_matrix_product_by_another_name_is_charged(product, a, b):
    torch.testing.assert_close(product(a, b), a @ b)
    assert count(product, a, b).total >= count(torch.mm, a, b).total


def windows(buffer):
    """A view in which element (i, j) lies at place i + j, so that many elements lie at one place."""
    return buffer.as_strided((M, N), (1, 1))


def updated_in_place(left, right, buffer):
    windows(buffer).addcmul_(left, right)


def updated_as_a_list(left, right, buffer):
    torch._foreach_addcmul_([windows(buffer)], [left], [right])


def updated_by_a_quotient(left, right, buffer):
    windows(buffer).addcdiv_(left, 1 / right)


def updated_as_output(left, right, buffer):
    torch.addcmul(windows(buffer), left, right, out=windows(buffer))


@pytest.mark.parametrize(
    "update",
    [
        case("convolves by an update in place of a tensor that overlaps itself", CHARGED, updated_in_place),
        case("the same by an update of a list", CHARGED, updated_as_a_list),
        case("the same by a quotient", CHARGED, updated_by_a_quotient),
        case("the same by the argument `out`", CHARGED, updated_as_output),
    ],
)
def test_a_convolution_in_the_memory_of_a_tensor_is_charged(update, a, b):
    left, right = a[:, :1].expand(M, N), b[:1].expand(M, N)
    buffer = torch.zeros(M + N - 1)
    charge = count(update, left, right, buffer)
    expected = torch.zeros(M + N - 1)
    for i in range(M):
        expected[i : i + N] += left[i, 0] * right[0]
    torch.testing.assert_close(buffer, expected)
    assert charge.total == 2 * M * N


@pytest.mark.parametrize(
    "loss",
    [
        case("adds up products of expanded operands by a squared error", CHARGED, F.mse_loss),
        case("the same by a binary cross-entropy", CHARGED, F.binary_cross_entropy_with_logits),
        case("the same by a distance", CHARGED, torch.dist),
        case("the same by a Huber loss", CHARGED, F.huber_loss),
    ],
)
def test_a_loss_of_expanded_operands_is_charged(loss, a, b):
    left, right = expanded(a, b)
    assert count(loss, left, right).total == 2 * M * K * N
    assert count(loss, left.contiguous(), right).total == 0


@attack("multiplies in the function that attention calls for each score", CHARGED)
def test_functions_inside_of_attention_are_charged():
    flex = pytest.importorskip("torch._higher_order_ops.flex_attention").flex_attention
    masks = pytest.importorskip("torch.nn.attention.flex_attention")
    q = torch.rand(1, 1, 4, 8)
    rows, columns = torch.rand(4, 50), torch.rand(4, 50)

    def attention(function, *buffers):
        mask = masks._create_empty_block_mask(q, q).as_tuple()
        with torch.no_grad():
            return flex(q, q, q, function, mask, 1.0, {}, buffers, ())[0]

    plain = count(attention, lambda score, batch, head, i, j: score + 0.1 * (i - j)).total
    assert plain == 2 * 2 * 4 * 4 * 8

    def product(score, batch, head, i, j, rows, columns):
        return torch.dot(rows[i], columns[j])

    charge = count(attention, product, rows, columns)
    torch.testing.assert_close(attention(product, rows, columns)[0, 0], (rows @ columns.T).softmax(-1) @ q[0, 0])
    assert charge.total == plain + count(torch.mm, rows, columns.T).total


@attack("a list of look-ups without weights stands for a product", "free: it only adds; a weighted one is charged")
def test_honest_use_of_the_same_operations_is_free(a, b):
    table = b.clone().requires_grad_()
    bag = count(lambda: F.embedding_bag(*rows(a)[:1], table, rows(a)[1], mode="sum").sum().backward())
    norm = torch.nn.LayerNorm(N)
    x = torch.rand(3, N, requires_grad=True)
    assert bag.total == count(lambda: norm(x).sum().backward()).total == 0
    parameter = torch.nn.Parameter(torch.rand(3, 4).T)
    parameter.grad = torch.rand(4, 3)
    assert count(torch.optim.Adam([parameter]).step).total == 0
