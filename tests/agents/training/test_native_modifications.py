"""Networks that differ from what their classes make, such as by hooks: the plain engine trains them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, weight_norm

from agents.networks.mlp_vgg import MLP, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.engines import choose_engine
from agents.training.native.supported import supports
from agents.training.settings import StageSettings
from agents.training.stage import plain_engine
from alma_env.scoring.normalised import Normalize

from .test_native import examples, mixture_of_experts, mlp, needs_compiler, vgg19
from .test_native_limits import PIXELS, SHORT, outcome, same

pytestmark = needs_compiler
NORMALIZE = Normalize(255, (0.5,), (0.25,))


class HalvedLinear(nn.Linear):
    """A subclass of a layer, with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


def halved_layer(body: nn.Module) -> None:
    body[3] = copy.deepcopy(body[3])  # type: ignore[index, operator]
    body[3].__class__ = HalvedLinear  # type: ignore[index]


def own_forward(module: nn.Module) -> None:
    of_class = module.forward
    module.forward = lambda x: of_class(x) / 2  # type: ignore[method-assign]


def zeros(gradient: Tensor) -> Tensor:
    return torch.zeros_like(gradient)


def zero_gradient(parameter: Tensor) -> None:
    parameter.grad = torch.zeros_like(parameter)


# Each changes what the layer body[3] computes, or how it trains.
CHANGES: dict[str, Callable[[Any], object]] = {
    "forward hook": lambda body: body[3].register_forward_hook(lambda module, inputs, out: out / 2),
    "forward pre-hook": lambda body: body[3].register_forward_pre_hook(lambda module, inputs: (inputs[0] / 2,)),
    "backward hook": lambda body: body[3].register_full_backward_hook(
        lambda module, inputs, outputs: (zeros(inputs[0]),)
    ),
    "backward pre-hook": lambda body: body[3].register_full_backward_pre_hook(lambda module, out: (zeros(out[0]),)),
    "hook on a container": lambda body: body.register_forward_hook(lambda module, inputs, out: out / 2),
    "hook on a parameter": lambda body: body[3].weight.register_hook(zeros),
    "hook after a gradient": lambda body: body[3].bias.register_post_accumulate_grad_hook(zero_gradient),
    "pruning": lambda body: prune.l1_unstructured(body[3], "weight", amount=0.5),
    "weight_norm": lambda body: weight_norm(body[3]),
    "parametrization": lambda body: parametrizations.orthogonal(body[3]),
    "forward of an instance": lambda body: own_forward(body[3]),
    "forward of the network": own_forward,
    "subclass of a layer": halved_layer,
    "loss of its own": lambda body: setattr(body, "training_loss", lambda x, y, balance: body(x).square().mean()),
}


def with_change(name: str) -> nn.Module:
    body = mlp()
    CHANGES[name](body)
    return body


of_weight_norm = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")


@of_weight_norm
@pytest.mark.parametrize("name", CHANGES)
def test_a_network_that_its_class_does_not_determine_is_trained_by_the_plain_engine(name: str) -> None:
    parts = examples(20, PIXELS, 0), examples(9, PIXELS, 7)
    _, state = same(lambda: Predictor(NORMALIZE, with_change(name)), *parts)
    _, of_class = outcome(plain_engine, Predictor(NORMALIZE, mlp()), *parts, SHORT)
    assert any(not torch.equal(state[key], tensor) for key, tensor in of_class.items() if key in state)


@of_weight_norm
@pytest.mark.parametrize("name", CHANGES)
def test_the_native_engine_refuses_such_a_network_and_auto_chooses_another(name: str) -> None:
    body = with_change(name)
    with pytest.raises(ValueError, match=r"engine='native': needs .* without hooks, .*engine='auto'"):
        choose_engine("native", body, StageSettings())
    assert choose_engine("auto", body, StageSettings()) == "plain"


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (lambda: UniformMixture([mlp(0), mlp(1)]), ""),
        (lambda: UniformMixture([mlp(0), mlp(1)]), "members.1.5"),
        (mixture_of_experts, "2.experts.1.0"),
        (mixture_of_experts, "2"),
        (vgg19, "features.1"),
        (vgg19, ""),
    ],
)
def test_a_hook_anywhere_in_a_network_counts_until_it_is_removed(body: Callable[[], nn.Module], part: str) -> None:
    network = body()
    assert supports(network, StageSettings())
    hook = network.get_submodule(part).register_forward_hook(lambda module, inputs, out: out / 2)
    assert not supports(network, StageSettings())
    hook.remove()
    assert supports(network, StageSettings())


def test_a_tensor_hook_counts_until_it_is_removed() -> None:
    body = mlp()
    for parameter in body.parameters():
        for register in (parameter.register_hook, parameter.register_post_accumulate_grad_hook):
            hook = register(zeros)
            assert not supports(body, StageSettings())
            hook.remove()
            assert supports(body, StageSettings())


@pytest.mark.parametrize("kind", [nn.Linear, nn.ReLU, MLP])
def test_a_class_whose_forward_was_replaced_counts(kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    of_class = kind.forward
    monkeypatch.setattr(kind, "forward", lambda layer, x: of_class(layer, x) / 2)
    assert not supports(mlp(), StageSettings())
    monkeypatch.undo()
    assert supports(mlp(), StageSettings())


@pytest.fixture
def hook_on_all_modules() -> Iterator[None]:
    hook = nn.modules.module.register_module_forward_hook(lambda module, inputs, out: None)
    yield
    hook.remove()


def test_a_hook_on_all_modules_of_the_process_counts(hook_on_all_modules: None) -> None:
    assert not supports(mlp(), StageSettings())
