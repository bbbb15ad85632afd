"""The paper's hyper-parameters per data set, as data (ALMA paper, section 5, appendix, first version).

Nothing here is tuned on a test set. Waiting time, width, replay and method are what is studied, not what is tuned; the
values given for them are defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agents.stage import StageSettings
from alma_env.data import TEXT


@dataclass(frozen=True)
class Recipe:
    """How a data set is learned.

    Attributes:
        backbone: ``mlp``, ``vgg19``, or ``switch`` for text.
        width: units per hidden layer, or channels per convolution, where none is asked for.
        waits: waiting times w in mega-batches that ``alma run`` compares where none is asked for.
        settings: how one stage is trained.
    """

    backbone: Literal["mlp", "vgg19", "switch"]
    width: int
    waits: tuple[int, ...]
    settings: StageSettings


_ADADELTA = StageSettings(epochs=100, optimizer="adadelta", learning_rate=1.0, rho=0.9, eps=1e-6)
_SGD = StageSettings(
    epochs=100,
    optimizer="sgd",
    learning_rate=0.01,
    momentum=0.9,
    weight_decay=1e-4,
    augmentation="crop_flip",
)

# One GPU's share of a paper's update is 3 accumulated parts of 8 sequences; few updates, for a text of a few megabytes.
_ADAM = StageSettings(
    epochs=10,
    updates=1_000,
    batch_size=24,
    accumulation=3,
    optimizer="adam",
    learning_rate=1e-3,
    beta1=0.9,
    beta2=0.98,
    eps=1e-8,
    schedule="linear",
    warmup=100,
    validation_batch=8,
)

RECIPES: dict[str, Recipe] = {
    "MNIST": Recipe("mlp", 32, (1, 10, 50, 500), _ADADELTA),
    "FashionMNIST": Recipe("mlp", 32, (1, 10, 50, 500), _ADADELTA),
    "EMNIST": Recipe("mlp", 32, (1, 5, 50), _ADADELTA),
    "CIFAR10": Recipe("vgg19", 32, (2, 10, 100), _SGD),
    "CIFAR100": Recipe("vgg19", 32, (1, 5, 50), replace(_SGD, epochs=200)),
    # METHODS E.3; the width is the number of experts in each Switch layer.
    TEXT: Recipe("switch", 4, (1, 4), _ADAM),
    "Digits": Recipe("mlp", 32, (1, 5, 20), _ADADELTA),
}

# A data set of one's own: the simplest choice that works for any shape of input.
DEFAULT_RECIPE = Recipe("mlp", 32, (1, 5), _ADADELTA)


def recipe_for(data_name: str) -> Recipe:
    """The recipe of a data set by its name; EMNIST's holds for each of its splits, ``EMNIST-byclass`` and so on."""
    return RECIPES.get(data_name.split("-")[0], DEFAULT_RECIPE)
