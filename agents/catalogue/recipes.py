"""The paper's hyper-parameters per data set, as data (ALMA paper, section 5, appendix, first version).

No value is tuned on a test set. Waiting time, width, replay and method are the subject of the study and are not tuned;
their values here are defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agents.training.settings import StageSettings
from alma_env.data.datasets import TEXT
from alma_env.data.image_files import EMNIST_SPLITS


@dataclass(frozen=True)
class Recipe:
    """The hyper-parameters for a data set.

    Attributes:
        backbone: ``mlp``, ``vgg19``, or ``switch`` for text.
        width: default width: units per hidden layer, channels per convolution, or experts per Switch layer.
        waits: waiting times w in mega-batches that ``alma run`` compares by default.
        settings: the settings of a stage.
    """

    backbone: Literal["mlp", "vgg19", "switch"]
    width: int
    waits: tuple[int, ...]
    settings: StageSettings


_ADADELTA = StageSettings(epochs=100, optimizer="adadelta", learning_rate=1.0, rho=0.9, eps=1e-6)
_SGD = StageSettings(
    epochs=100, optimizer="sgd", learning_rate=0.01, momentum=0.9, weight_decay=1e-4, augmentation="crop_flip"
)

# One GPU's share of an update of the paper is 3 accumulated parts of 8 sequences. The number of updates is small: it
# suits a text of a few megabytes.
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
    # ALMA paper, section 5, text; docs/differences.md has what differs.
    TEXT: Recipe("switch", 4, (1, 4), _ADAM),
    "Digits": Recipe("mlp", 32, (1, 5, 20), _ADADELTA),
}

# For a custom data set: the simplest choice that works for inputs of any shape.
DEFAULT_RECIPE = Recipe("mlp", 32, (1, 5), _ADADELTA)


EMNIST_NAMES = {f"EMNIST-{split}" for split in EMNIST_SPLITS}


def recipe_for(data_name: str) -> Recipe:
    """Return the recipe of a data set; all splits of EMNIST (``EMNIST-byclass`` etc.) share one."""
    return RECIPES.get("EMNIST" if data_name in EMNIST_NAMES else data_name, DEFAULT_RECIPE)
