"""Networks that are exactly what their classes make, so that the weights and sizes determine what they compute.

PyTorch lets each instance differ from its class: by hooks on modules and on tensors, by pruning and weight
normalisation, and by a `forward` of its own. C++ reads the weights and sizes only, so it would compute something else;
a CUDA graph repeats the first step, and calls no Python function again.
"""

from __future__ import annotations

from torch import Tensor, nn

from agents.networks.firefly_network import FireflyVGG19, ResidualLayer
from agents.networks.gate_tree import MixtureLayer
from agents.networks.mixture import MixtureMLP, MixtureVGG19
from agents.networks.mlp_vgg import MLP, VGG19
from agents.networks.uniform_mixture import UniformMixture
from alma_env.scoring.held_objects import is_library_class

_LAYERS = (
    *(
        nn.Flatten(),
        nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(1),
        nn.AdaptiveAvgPool2d(1),
        nn.Sequential(),
        nn.ModuleList(),
    ),
    *(nn.Linear(1, 1, device="meta"), nn.Conv2d(1, 1, 1, device="meta"), nn.BatchNorm2d(1, device="meta")),
)
# The attributes of an instance of each class. Any other attribute, such as `forward`, can change what it computes.
_ATTRIBUTES: dict[type[nn.Module], frozenset[str]] = {
    **{type(layer): frozenset(vars(layer)) for layer in _LAYERS},
    **dict.fromkeys((MLP, MixtureMLP, VGG19, FireflyVGG19, MixtureVGG19, ResidualLayer), frozenset(vars(nn.Module()))),
    MixtureLayer: frozenset(vars(nn.Module())) | {"make_expert", "features", "routing", "splits", "gates"},
    UniformMixture: frozenset(vars(nn.Module())) | {"reduce"},
}
_TENSORS_AND_MODULES = frozenset({"_parameters", "_buffers", "_modules"})


def is_unmodified(body: nn.Module) -> bool:
    """Return whether no module and no tensor of a network has hooks, attributes or functions of its own.

    Hooks on all modules of the process and a class whose `forward` was replaced count, too. Every class that is not one
    of the networks and layers of the paper's learners is a modification.
    """
    listened: bool = nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    return not listened and all(map(_module_is_unmodified, nn.Module.modules(body)))


def _module_is_unmodified(module: nn.Module) -> bool:
    own = vars(module)
    hooks = (value for name, value in own.items() if isinstance(value, dict) and name not in _TENSORS_AND_MODULES)
    tensors = (*module._parameters.values(), *module._buffers.values())
    return (
        own.keys() <= _ATTRIBUTES.get(type(module), frozenset())
        and is_library_class(type(module))
        and not any(hooks)
        and all(tensor is None or _tensor_is_unmodified(tensor) for tensor in tensors)
    )


def _tensor_is_unmodified(tensor: Tensor) -> bool:
    hooked = tensor._backward_hooks or tensor._post_accumulate_grad_hooks
    return type(tensor) in (nn.Parameter, Tensor) and not hooked
