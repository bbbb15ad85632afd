"""The mixture layer: its formula, what a split preserves, and the gradients of hard gates."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from agents.networks.gate_tree import MixtureLayer, Routing, balanced_splits, leaf_paths
from agents.networks.mlp_vgg import linear
from alma_env.metering import count

from ..random_examples import seeded

FEATURES, UNITS = 5, 4
HARD = Routing("hard")
SPARSE = Routing("hard", "sparse")


def hidden_layer(generator: torch.Generator) -> nn.Module:
    return nn.Sequential(linear(FEATURES, UNITS, generator), nn.ReLU())


def convolutions(generator: torch.Generator) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2))


def grown(*splits: int, routing: Routing | None = None, copies: bool = False) -> MixtureLayer:
    """Return a float64 layer with untrained experts, or with copies."""
    layer = MixtureLayer(hidden_layer, FEATURES, generator=seeded()).double()
    layer.routing = routing or Routing()
    if copies:
        for number, leaf in enumerate(splits):
            layer.split(leaf, seeded(number))
    else:
        layer.regrow(splits, seeded(1))
    return layer


def inputs(n: int = 7) -> Tensor:
    return torch.randn(n, FEATURES, dtype=torch.float64, generator=seeded(9))


@pytest.mark.parametrize("routing", [Routing(), Routing(tree=False), HARD], ids=str)
def test_a_batch_may_be_empty(routing: Routing) -> None:
    layer = grown(0, 1, routing=routing).eval()
    assert layer(inputs(0)).shape == (0, UNITS)


def uniform(n: int, gates: int, seed: int = 3) -> Tensor:
    return torch.rand(n, gates, dtype=torch.float64, generator=seeded(seed))


def run(layer: MixtureLayer, z: Tensor, draws: Tensor) -> Tensor:
    """Return the output of hard gates in training with given random numbers (n, gates)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", lambda shape, device: draws[: shape[0], : shape[1]])
        return layer(z)


def gate(layer: MixtureLayer, number: int, z: Tensor) -> Tensor:
    """Return g_v(·|z), (n, 2)."""
    assert layer.gates is not None
    rows = slice(2 * number, 2 * number + 2)
    return (z @ layer.gates.weight[rows].T + layer.gates.bias[rows]).softmax(1)


def set_gates(layer: MixtureLayer, probabilities: list[list[float]]) -> None:
    """Set gates that do not depend on z."""
    assert layer.gates is not None
    with torch.no_grad():
        layer.gates.weight.zero_()
        layer.gates.bias.copy_(torch.tensor(probabilities, dtype=torch.float64).log().flatten())


def test_one_leaf_has_no_gate_and_is_the_plain_layer() -> None:
    plain, layer, z = hidden_layer(seeded()).double(), grown(routing=HARD), inputs()
    assert layer.gates is None
    assert [p.shape for p in layer.parameters()] == [p.shape for p in plain.parameters()]
    before = torch.get_rng_state()
    assert torch.equal(layer(z), plain(z))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layer.leaf_probabilities(z), torch.ones(7, 1, dtype=torch.float64))


def test_the_output_follows_the_recursive_formula() -> None:
    layer, z = grown(0, 1, 0, 2), inputs()
    g = [gate(layer, number, z) for number in range(4)]
    # Splits 0 and 1 give (a, (b, c)), split 0 then ((a, a'), (b, c)), and split 2 then ((a, a'), ((b, b'), c)).
    h = [expert(z) for expert in layer.experts]
    left = g[2][:, :1] * h[0] + g[2][:, 1:] * h[1]
    inner = g[3][:, :1] * h[2] + g[3][:, 1:] * h[3]
    right = g[1][:, :1] * inner + g[1][:, 1:] * h[4]
    by_hand = g[0][:, :1] * left + g[0][:, 1:] * right
    torch.testing.assert_close(layer(z), by_hand, rtol=0, atol=1e-14)
    shares = layer.leaf_probabilities(z)
    torch.testing.assert_close(shares[:, 3], g[0][:, 1] * g[1][:, 0] * g[3][:, 1], rtol=0, atol=1e-15)
    torch.testing.assert_close(sum(shares[:, [j]] * h[j] for j in range(5)), by_hand, rtol=0, atol=1e-14)
    assert leaf_paths(layer.splits) == [[0, 4], [0, 5], [1, 2, 6], [1, 2, 7], [1, 3]]


@pytest.mark.parametrize("tree", [True, False])
def test_the_leaf_probabilities_sum_to_one(tree: bool) -> None:
    layer, z = grown(0, 0, 2, routing=Routing(tree=tree)), 10 * inputs()
    for output, shares in (layer.forward_with_shares(z), (layer(z), layer.leaf_probabilities(z))):
        assert shares.shape == (7, 4)
        assert (shares.sum(1) - 1).abs().max() < 1e-12
        assert torch.equal(output, layer(z))


@pytest.mark.parametrize("units", [1, 4, 19])
@pytest.mark.parametrize("n", [1, 24, 1000])
def test_experts_in_one_product_have_the_outputs_and_gradients_of_separate_experts(n: int, units: int) -> None:
    def expert(generator: torch.Generator) -> nn.Module:
        return nn.Sequential(linear(FEATURES, units, generator), nn.ReLU())

    layer = MixtureLayer(expert, FEATURES, generator=seeded())
    layer.regrow((0, 1, 0), seeded(1))
    layer.split(2, seeded(2))  # a copy
    separate = copy.deepcopy(layer)
    for number, one in enumerate(separate.experts):
        separate.experts[number] = nn.Sequential(one, nn.Identity())
    z = torch.randn(n, FEATURES, generator=seeded(9))
    outputs = [layer(z), separate(z)]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    for own, other in zip(layer.parameters(), separate.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    assert count(layer, z).total == count(separate, z).total


def test_a_split_does_not_change_soft_outputs() -> None:
    layer, z = grown(0, 1), inputs()
    before = layer(z)
    for leaf in (1, 0, 4):
        layer.split(leaf, seeded(leaf))
        assert (layer(z) - before).abs().max() < 1e-12


@pytest.mark.parametrize("routing", [HARD, SPARSE])
def test_a_split_does_not_change_hard_outputs_for_the_same_random_numbers(routing: Routing) -> None:
    layer, z, draws = grown(0, 1, routing=routing).train(), inputs(50), uniform(50, 3)
    before = run(layer, z, draws)
    layer.split(1, seeded(4))
    assert (run(layer, z, draws) - before).abs().max() < 1e-12


def test_a_split_does_not_change_greedy_outputs() -> None:
    layer, z = grown(0, 1, routing=HARD).eval(), inputs(50)
    before, shares = layer.forward_with_shares(z)
    assert (shares.sum(0) > 0).sum() > 1
    layer.split(int(shares.sum(0).argmax()), seeded(4))
    assert (layer(z) - before).abs().max() < 1e-12
    assert torch.equal(shares.sum(0).max(), layer.forward_with_shares(z)[1].sum(0)[layer.splits[-1] :][:2].sum())


def test_greedy_descent_does_not_follow_the_largest_leaf_probability() -> None:
    layer, z = grown(0, 1, routing=HARD).eval(), inputs()
    set_gates(layer, [[0.5, 0.5], [0.9, 0.1]])
    torch.testing.assert_close(layer.leaf_probabilities(z)[0].tolist(), [0.5, 0.45, 0.05])
    before, shares = layer.forward_with_shares(z)
    assert (shares.argmax(1) == 0).all()  # a tie at the root: left
    layer.split(0, seeded())
    set_gates(layer, [[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    torch.testing.assert_close(layer.leaf_probabilities(z)[0].tolist(), [0.25, 0.25, 0.45, 0.05])
    after, shares = layer.forward_with_shares(z)
    assert (layer.leaf_probabilities(z).argmax(1) == 2).all()
    assert (shares.argmax(1) == 0).all()
    torch.testing.assert_close(after, before, rtol=0, atol=1e-15)
    assert (before - layer.experts[2](z)).abs().max() > 1e-3


@pytest.mark.parametrize("routing", [Routing(), HARD])
def test_after_a_split_the_new_gate_has_no_gradient_and_the_children_share_that_of_the_parent(routing: Routing) -> None:
    layer, z, draws = grown(0, routing=routing).train(), inputs(30), uniform(30, 2)
    target = torch.randn(30, UNITS, dtype=torch.float64, generator=seeded(8))

    def gradients(of: MixtureLayer) -> MixtureLayer:
        of.zero_grad()
        (run(of, z, draws) * target).sum().backward()
        return of

    parent = gradients(copy.deepcopy(layer))
    layer.split(1, seeded(4))
    gradients(layer)
    assert layer.gates is not None
    assert parent.gates is not None
    assert layer.gates.weight.grad[2:].abs().max() < 1e-15  # type: ignore[index]
    torch.testing.assert_close(layer.gates.weight.grad[:2], parent.gates.weight.grad, rtol=0, atol=1e-12)
    for old, left, right in zip(
        parent.experts[1].parameters(), layer.experts[1].parameters(), layer.experts[2].parameters(), strict=True
    ):
        torch.testing.assert_close(left.grad + right.grad, old.grad, rtol=0, atol=1e-12)
        assert not torch.equal(left.grad, right.grad)  # the children become different, and then the gate learns


def test_the_right_leaf_is_a_copy_that_shares_no_memory() -> None:
    layer = grown(0, 0, copies=True)
    weights = [expert[0].weight for expert in layer.experts]  # type: ignore[index]
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    assert len({weight.data_ptr() for weight in weights}) == 3


def test_new_gates_have_the_default_initialisation_and_come_from_the_generator() -> None:
    layer, before = grown(0), torch.get_rng_state()
    layer.split(0, seeded(7))
    expected = linear(FEATURES, 2, seeded(7))
    assert layer.gates is not None
    assert torch.equal(layer.gates.weight[2:], expected.weight.double())
    assert torch.equal(layer.gates.bias[2:], expected.bias.double())
    assert torch.equal(torch.get_rng_state(), before)


def straight_through_by_hand(layer: MixtureLayer, z: Tensor, draws: Tensor, *, dense: bool) -> Tensor:
    """Return the output for the splits (0, 1), (a, (b, c)), with a_v = onehot + g_v − stop(g_v)."""
    weights = []
    for number in range(2):
        g = gate(layer, number, z)
        right = draws[:, number] < g[:, 1]
        weights.append(torch.stack([~right, right], 1).double() + g - g.detach())
    h = [expert(z) for expert in layer.experts]
    (first, second), right = weights, [(a.detach() > 0.5)[:, 1] for a in weights]
    paths = [first[:, 0], first[:, 1] * second[:, 0], first[:, 1] * second[:, 1]]
    if dense:
        inner = second[:, :1] * h[1] + second[:, 1:] * h[2]
        return first[:, :1] * h[0] + first[:, 1:] * inner
    leaf = torch.where(right[0], 1 + right[1].long(), 0)
    drawn = torch.stack(h, 1)[torch.arange(len(z)), leaf]
    return torch.stack(paths, 1)[torch.arange(len(z)), leaf, None] * drawn


@pytest.mark.parametrize("routing", [HARD, SPARSE])
def test_straight_through_gates_have_the_gradients_of_the_formula(routing: Routing) -> None:
    layer, z, draws = grown(0, 1, routing=routing).train(), inputs(40), uniform(40, 2)
    z.requires_grad_()
    target = torch.randn(40, UNITS, dtype=torch.float64, generator=seeded(8))
    variables = [z, *layer.parameters()]
    output = run(layer, z, draws)
    by_hand = straight_through_by_hand(layer, z, draws, dense=routing.straight_through == "dense")
    torch.testing.assert_close(output, by_hand, rtol=0, atol=1e-14)
    found = torch.autograd.grad((output * target).sum(), variables)
    expected = torch.autograd.grad((by_hand * target).sum(), variables)
    assert all((a - b).abs().max() < 1e-12 for a, b in zip(found, expected, strict=True))


def test_dense_and_sparse_differ_only_in_the_gradients_of_the_gates() -> None:
    dense, sparse, z, draws = grown(0, 0, routing=HARD), grown(0, 0, routing=SPARSE), inputs(40), uniform(40, 2)
    torch.testing.assert_close(run(dense, z, draws), run(sparse, z, draws), rtol=0, atol=1e-14)
    for layer in (dense, sparse):
        run(layer, z, draws).sum().backward()
    torch.testing.assert_close(dense.experts[1][0].weight.grad, sparse.experts[1][0].weight.grad)  # type: ignore[index]
    assert dense.gates is not None
    assert sparse.gates is not None
    assert (dense.gates.weight.grad - sparse.gates.weight.grad).abs().max() > 1e-3  # type: ignore[operator]


@pytest.mark.parametrize("routing", [HARD, SPARSE])
def test_routes_are_drawn_with_the_leaf_probabilities_from_the_global_generator(routing: Routing) -> None:
    layer, z = grown(0, 1, 0, routing=routing).train(), inputs(1).expand(20_000, -1)
    with torch.no_grad():
        for number, expert in enumerate(layer.experts):  # the output of each expert is its number
            expert[0].weight.zero_()  # type: ignore[index]
            expert[0].bias.fill_(float(torch.atanh(torch.tensor(0.1 * number))))  # type: ignore[index]
    torch.manual_seed(5)
    first = layer(z)
    torch.manual_seed(5)
    assert torch.equal(layer(z), first)
    assert not torch.equal(layer(z), first)
    frequencies = torch.bincount((10 * first[:, 0]).round().long(), minlength=4) / len(z)
    torch.testing.assert_close(frequencies.double(), layer.leaf_probabilities(z)[0], rtol=0, atol=0.015)


def test_greedy_descent_runs_one_expert_and_the_gates_on_its_path() -> None:
    layer, z = grown(0, 1, 2, routing=HARD).eval(), inputs(60)
    shares = layer.forward_with_shares(z)[1]
    depths = torch.tensor([len(path) for path in leaf_paths(layer.splits)], dtype=torch.float64)
    gates = int((shares @ depths).sum())
    assert 60 < gates < 180
    layer, z = layer.float(), z.float()
    assert count(layer, z).total == 2 * (60 * FEATURES * UNITS + gates * 2 * FEATURES)
    layer.routing = Routing()
    assert count(layer, z).total == 2 * 60 * (4 * FEATURES * UNITS + 3 * 2 * FEATURES)


def test_greedy_outputs_are_in_the_order_of_the_examples() -> None:
    layer, z = grown(0, 0, 1, routing=HARD).eval(), inputs(60)
    shares = layer.forward_with_shares(z)[1]
    assert (shares.sum(0) > 0).sum() > 1
    expected = sum(shares[:, [j]] * expert(z) for j, expert in enumerate(layer.experts))
    torch.testing.assert_close(layer(z), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("training", [True, False])
def test_experts_may_get_no_example(training: bool) -> None:
    layer = MixtureLayer(convolutions, 2 * 16 * 16, nn.Flatten(), generator=seeded())
    layer.routing = SPARSE
    layer.regrow((0, 0, 0), seeded())
    layer.train(training)
    assert layer.gates is not None
    with torch.no_grad():
        layer.gates.weight.zero_()
        layer.gates.bias.copy_(torch.tensor([0.0, 9.0] * 3))
    z = torch.randn(3, 2, 16, 16, generator=seeded())
    draws = torch.full((3, 3), 0.5)
    output = run(layer, z, draws)
    torch.testing.assert_close(output, layer.experts[3](z))
    assert layer.experts[0][1].num_batches_tracked == 0  # type: ignore[index]
    assert run(layer, z[:1], draws).shape == (1, 3, 8, 8)


def test_a_flat_split_changes_the_function_unless_the_new_row_is_a_halved_copy() -> None:
    layer, z = grown(0, 1, routing=Routing(tree=False)), inputs()
    before = layer(z)
    layer.split(1, seeded(4))
    assert layer.gates is not None
    assert layer.gates.out_features == 4
    assert torch.equal(layer.experts[3][0].weight, layer.experts[1][0].weight)  # type: ignore[index]
    assert (layer(z) - before).abs().max() > 1e-3
    with torch.no_grad():  # a copy of the row, and log 2 less in both biases
        layer.gates.weight[3] = layer.gates.weight[1]
        layer.gates.bias[1] -= torch.tensor(2.0).log()
        layer.gates.bias[3] = layer.gates.bias[1]
    torch.testing.assert_close(layer(z), before, rtol=0, atol=1e-7)


def test_with_two_experts_flat_and_tree_are_equal() -> None:
    flat, tree, z = grown(0, routing=Routing(tree=False)), grown(0), inputs()
    torch.testing.assert_close(flat(z), tree(z), rtol=0, atol=1e-15)


def test_initial_trees_are_balanced() -> None:
    assert [balanced_splits(leaves) for leaves in (1, 2, 3, 4)] == [(), (0,), (0, 0), (0, 0, 2)]
    assert [len(path) for path in leaf_paths(balanced_splits(8))] == [3] * 8


@pytest.mark.parametrize("routing", [Routing(), HARD])
def test_a_layer_can_be_copied_and_pickled(routing: Routing) -> None:
    layer, z = grown(0, 1, routing=routing).eval(), inputs()
    layer.make_expert = partial(hidden_layer)
    assert torch.equal(copy.deepcopy(layer)(z), layer(z))
    assert torch.equal(pickle.loads(pickle.dumps(layer.summary))(z), z)


def test_a_value_out_of_range_raises_with_its_name() -> None:
    with pytest.raises(ValueError, match="gating='top1'.*soft, hard"):
        Routing(gating="top1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="straight_through='gumbel'"):
        Routing(straight_through="gumbel")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tree=False with gating='hard'.*use"):
        Routing("hard", tree=False)
    with pytest.raises(ValueError, match="leaf=2.*0 to 1"):
        grown(0).split(2, seeded())
    with pytest.raises(ValueError, match="leaf=-1"):
        grown(0).split(-1, seeded())
    with pytest.raises(ValueError, match=r"splits=\(0, 0\).*\(0, 1\).*new layer"):
        grown(0, 1).regrow((0, 0), seeded())
