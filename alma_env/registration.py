"""The environments that Gymnasium knows by id, and the numbers of their protocols.

This module imports neither PyTorch nor the environment: Gymnasium imports `alma_env.construction` when it makes one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from gymnasium.envs.registration import register, registry

from alma_env import entry_points

# The numbers of the protocols (ALMA paper, section 5, and its first version): the number of mega-batches B of each
# stream, and the test examples per forward pass. The batches of images are smaller: the activations of a larger batch
# do not fit into a processor's cache.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "MNIST-ALMA-v0": {"data": "MNIST", "ticks": 500},
    "FashionMNIST-ALMA-v0": {"data": "FashionMNIST", "ticks": 500},
    "EMNIST-ALMA-v0": {"data": "EMNIST", "ticks": 50, "split": "byclass"},
    "CIFAR10-ALMA-v0": {"data": "CIFAR10", "ticks": 100, "evaluation_batch_size": 128},
    "CIFAR100-ALMA-v0": {"data": "CIFAR100", "ticks": 50, "evaluation_batch_size": 128},
    "Digits-ALMA-v0": {"data": "Digits", "ticks": 20},
}
ARRAYS_ID = "Arrays-ALMA-v0"
ARRAYS_PROPERTIES = ("name", "classes", "scale", "mean", "std")  # keywords of `alma_env.from_arrays`
ROWS_KEYWORDS = ("columns", "folder")  # of `alma_env.from_dataset`, for a folder of images or of Hugging Face
ARRAYS_KEYWORDS = ("data", "train", "test", *ARRAYS_PROPERTIES, *ROWS_KEYWORDS)
TEXT_ID = "Text-ALMA-v0"
TEXT_TICKS = 4  # the default
TEXT_KEYWORDS = ("train", "valid", "test", "sequence_length", "vocabulary_size", "tokenizer", "cache")
TINY_SIZES = {"sequence_length": 64, "vocabulary_size": 1_000}  # for the text that comes with the package
STREAM_IDS = (*PROTOCOLS, ARRAYS_ID, TEXT_ID)
NAMESPACE = "alma_env/"  # every id also exists with this prefix

PROTOCOL_KEYWORDS = ("valid_fraction", "partition", "flops_budget", "parameter_budget", "evaluation_batch_size")


def keywords_of(id: str) -> tuple[str, ...]:
    """Return the keywords that `alma_env.make` takes for an environment."""
    of_data = {TEXT_ID: TEXT_KEYWORDS, ARRAYS_ID: ARRAYS_KEYWORDS}.get(id, ("root", "download"))
    split = ("split",) if "split" in PROTOCOLS.get(id, {}) else ()
    return ("ticks", *PROTOCOL_KEYWORDS, *of_data, *split)


def register_all() -> None:
    """Register the ids with Gymnasium; ``import alma_env`` does this.

    Each id is also registered in the namespace ``alma_env``, as in ``alma_env/CIFAR10-ALMA-v0``. No time limit is
    registered: an episode terminates at its last tick.
    """
    for id, keywords in PROTOCOLS.items():
        register_in_both_namespaces(id, entry_point="alma_env.construction:build", kwargs=keywords)
    register_in_both_namespaces(ARRAYS_ID, entry_point="alma_env.construction:build_from_arrays")
    register_in_both_namespaces(TEXT_ID, entry_point="alma_env.construction:build_from_text")
    _register_further_environments()


def register_in_both_namespaces(id: str, *, kwargs: Mapping[str, Any] | None = None, **settings: Any) -> None:
    """Register an environment as ``id`` and as ``alma_env/id``, unless it is registered.

    `settings` are arguments of ``gymnasium.register``.
    """
    for name in (id, NAMESPACE + id):
        if name not in registry:
            register(name, kwargs=dict(kwargs or {}), **settings)


def _register_further_environments() -> None:
    """Call the entry points ``gymnasium.envs`` of this distribution: its other packages register environments there.

    Gymnasium has not called these entry points since version 1.0. If a package of the user hides the package of an
    entry point, its ids are registered too. Making one of them raises an error that names the user's package.
    """
    for entry_point in entry_points.of_group("gymnasium.envs"):
        try:
            entry_points.load(entry_point)()
        except entry_points.HiddenPackageError as error:
            before = set(registry)
            entry_points.load_from_own_file(entry_point)()
            for id in registry.keys() - before:
                registry[id].entry_point = registry[id].vector_entry_point = entry_points.refusal(str(error))
        except ModuleNotFoundError:  # this package is used without the others
            continue


def __getattr__(name: str) -> Any:
    """Return what has moved to `alma_env.construction`: Minari data sets and saved Gymnasium specs name it here."""
    if name in ("build", "build_from_arrays", "build_from_text", "make"):
        return getattr(importlib.import_module("alma_env.construction"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
