"""Recurrent layers cost the same in every kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alma_env.metering import count

from .costs import cost, forward_and_backward, randn, train

GATES = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrent_layer_costs_the_same_with_every_kernel(
    kind: type[nn.RNNBase], bidirectional: bool, batch_first: bool
) -> None:
    length, batch, inputs, hidden, layers = 5, 3, 7, 6, 2
    directions, gates = 1 + bidirectional, GATES[kind]
    net = kind(inputs, hidden, layers, bidirectional=bidirectional, batch_first=batch_first)
    x = randn(*((batch, length) if batch_first else (length, batch)), inputs)

    forward = backward = 0
    for layer in range(layers):
        to_gates = (inputs if layer == 0 else hidden * directions) * hidden * gates * batch * length
        recurrent = hidden * hidden * gates * batch
        forward += 2 * directions * (to_gates + recurrent * length)
        weights = to_gates + recurrent * length
        activations = (to_gates if layer > 0 else 0) + recurrent * (length - 1)
        backward += 2 * directions * (weights + activations)

    assert forward_and_backward(count(lambda: train(net(x)[0]))) == (forward, backward)
    with torch.backends.mkldnn.flags(enabled=False):
        assert forward_and_backward(count(lambda: train(net(x)[0]))) == (forward, backward)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert count(net, x).total == forward
    on_meta = net.to("meta")
    assert forward_and_backward(count(lambda: train(on_meta(x.to("meta"))[0]))) == (forward, backward)


def test_the_input_gradient_of_a_recurrent_layer_is_charged_if_it_is_needed() -> None:
    net, x = nn.LSTM(7, 6), randn(5, 3, 7, grad=True)
    fused = count(lambda: train(net(x)[0]))
    with torch.backends.mkldnn.flags(enabled=False):
        plain = count(lambda: train(net(x)[0]))
    assert fused == plain
    assert fused.total - count(lambda: train(net(x.detach())[0])).total == 2 * 5 * 3 * 7 * 6 * 4


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_recurrent_cell_costs_its_two_products(cell: type[nn.Module]) -> None:
    gates = {nn.RNNCell: 1, nn.GRUCell: 3, nn.LSTMCell: 4}[cell]
    assert count(cell(7, 6), randn(3, 7)).total == 2 * 3 * gates * 6 * (7 + 6)


def test_the_fused_recurrent_kernel_of_a_gpu_costs_what_the_plain_kernel_costs() -> None:
    length, batch, inputs, hidden = 5, 3, 7, 6
    net, x = nn.LSTM(inputs, hidden, 2, bidirectional=True), randn(length, batch, inputs)
    plain = count(lambda: train(net(x)[0]))
    weights = [w for layer in net.all_weights for w in layer]
    start = torch.zeros(4, batch, hidden)
    forward = (x, weights, 4, None, start, start, 2, hidden, 0, 2, False, 0.0, True, True, [], None)
    assert cost(torch.ops.aten._cudnn_rnn.default, *forward) == sum(plain.forward.values())
    backward = (x, weights, 4, x, start, start, x, x, x, x, 2, hidden, 0, 2, False, 0.0, True, True, [], None, x)
    backward += ((False, False, False, True),)  # type: ignore[assignment]
    expected = plain.total - sum(plain.forward.values())
    assert cost(torch.ops.aten._cudnn_rnn_backward.default, *backward) == expected
