"""The environments by id, and ``make``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym

from alma_env.data import from_arrays, load
from alma_env.env import AlmaEnv
from alma_env.text import tiny_text
from alma_env.text_corpus import TextCorpus

if TYPE_CHECKING:
    from pathlib import Path

# The protocol's numbers (ALMA paper, section 5 and its first version): the mega-batches B of each stream, and the
# test examples per forward pass, smaller for images whose activations would not fit a processor's cache.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "MNIST-ALMA-v0": {"data": "MNIST", "ticks": 500},
    "FashionMNIST-ALMA-v0": {"data": "FashionMNIST", "ticks": 500},
    "EMNIST-ALMA-v0": {"data": "EMNIST", "ticks": 50, "split": "byclass"},
    "CIFAR10-ALMA-v0": {"data": "CIFAR10", "ticks": 100, "evaluation_batch_size": 128},
    "CIFAR100-ALMA-v0": {"data": "CIFAR100", "ticks": 50, "evaluation_batch_size": 128},
    "Digits-ALMA-v0": {"data": "Digits", "ticks": 20},
}
ARRAYS_ID = "Arrays-ALMA-v0"
ARRAYS_KEYWORDS = ("name", "classes", "scale", "mean", "std")
TEXT_ID = "Text-ALMA-v0"
TEXT_KEYWORDS = ("train", "valid", "test", "sequence_length", "vocabulary_size", "tokenizer", "cache")
TINY_SIZES = {"sequence_length": 64, "vocabulary_size": 1_000}  # of the text that comes with the package

PROTOCOL_KEYWORDS = (
    "valid_fraction",
    "partition",
    "flops_budget",
    "parameter_budget",
    "evaluation_batch_size",
)


def build(data: str, ticks: int, *, root: str | Path | None = None, download: bool = True, **keywords: Any) -> AlmaEnv:
    """Entry point of the ids of named data sets; other keywords go to ``AlmaEnv`` or, as ``split``, to ``load``."""
    protocol = _protocol(keywords, ("ticks", "root", "download"), ("split",) if data == "EMNIST" else ())
    return AlmaEnv(load(data, root=root, download=download, **keywords), ticks, **protocol)


def build_from_arrays(train: Any = None, test: Any = None, ticks: int = 50, **keywords: Any) -> AlmaEnv:
    """Entry point of ``Arrays-ALMA-v0``: a stream from arrays of one's own, ``train=(x, y), test=(x, y)``."""
    if train is None or test is None:
        raise ValueError(
            f"{ARRAYS_ID} without data: give it, alma_env.make('{ARRAYS_ID}', train=(x, y), test=(x, y), ticks=50)"
        )
    protocol = _protocol(keywords, ("train", "test", "ticks"), ARRAYS_KEYWORDS)
    return AlmaEnv(from_arrays(train, test, **keywords), ticks, **protocol)


def build_from_text(train: Any = "tiny", ticks: int = 4, **keywords: Any) -> AlmaEnv:
    """Entry point of ``Text-ALMA-v0``: a stream of token sequences from files of plain text.

    ``train="tiny"`` is the text that comes with the package, with a vocabulary and sequences that fit its size.
    """
    protocol = _protocol(keywords, ("train", "ticks"), TEXT_KEYWORDS[1:])
    if train == "tiny":
        for name in ("valid", "test"):
            if keywords.pop(name, None) is not None:
                raise ValueError(
                    f"{name} with train='tiny': the text that comes with the package has its own; leave {name} out, "
                    "or give train, too"
                )
        train, valid = tiny_text()
        keywords = TINY_SIZES | keywords | {"valid": valid}
    if keywords.get("valid") is None:
        raise ValueError(
            f"train={str(train)!r} without valid: text is validated on a set of its own, not on a part of each "
            f"mega-batch; give one, alma_env.make('{TEXT_ID}', train=FOLDER, valid=FILE)"
        )
    return AlmaEnv(TextCorpus(train, **keywords), ticks, **({"evaluation_batch_size": 8} | protocol))


def _protocol(keywords: dict[str, Any], taken: tuple[str, ...], of_data: tuple[str, ...]) -> dict[str, Any]:
    """Take the protocol's keywords out of ``keywords``; what is left must be the data's."""
    protocol = {name: keywords.pop(name) for name in PROTOCOL_KEYWORDS if name in keywords}
    for name, value in keywords.items():
        if name not in of_data:
            known = ", ".join((*taken, *PROTOCOL_KEYWORDS, *of_data))
            raise TypeError(f"{name}={value!r}: unknown keyword of this environment; it has {known}")
    return protocol


def keywords_of(id: str) -> tuple[str, ...]:
    """The keywords that `make` takes for an environment."""
    of_data = {TEXT_ID: TEXT_KEYWORDS, ARRAYS_ID: ("train", "test", *ARRAYS_KEYWORDS)}.get(id, ("root", "download"))
    split = ("split",) if "split" in PROTOCOLS.get(id, {}) else ()
    return ("ticks", *PROTOCOL_KEYWORDS, *of_data, *split)


def register_all() -> None:
    """Tell Gymnasium the ids; done by ``import alma_env``. No time limit: the last tick is a termination."""
    for id, keywords in PROTOCOLS.items():
        if id not in gym.registry:
            gym.register(id, entry_point="alma_env.registration:build", kwargs=dict(keywords))
    if ARRAYS_ID not in gym.registry:
        gym.register(ARRAYS_ID, entry_point="alma_env.registration:build_from_arrays")
    if TEXT_ID not in gym.registry:
        gym.register(TEXT_ID, entry_point="alma_env.registration:build_from_text")
    # Named, not imported: what decides about a learner lies in the layer above, and is loaded by who makes it.
    for stream in (*PROTOCOLS, ARRAYS_ID, TEXT_ID):
        id = stream.replace("-v0", "-Wait-v0")
        if id not in gym.registry:
            gym.register(id, entry_point="agents.waiting.environment:WaitEnv", kwargs={"stream": stream})
        id = stream.replace("-v0", "-Wait-Surrogate-v0")
        if id not in gym.registry and stream != TEXT_ID:
            gym.register(
                id,
                entry_point="agents.waiting.surrogate:SurrogateEnv",
                vector_entry_point="agents.waiting.surrogate:SurrogateVectorEnv",
                kwargs={"stream": stream},
            )


def make(id: str, **keywords: Any) -> AlmaEnv:
    """Make an environment by id, without Gymnasium's wrappers around it.

    Args:
        id: for example ``"CIFAR10-ALMA-v0"``; ``alma envs`` lists them.
        keywords: any number of the protocol: ``ticks``, ``valid_fraction``, ``partition``, ``flops_budget``,
            ``parameter_budget``; of the data: ``root``, ``download``, EMNIST's ``split``; of ``Arrays-ALMA-v0``:
            ``train``, ``test``, ``classes``, ``mean``, ``std``; of ``Text-ALMA-v0``: ``train``, ``valid``, ``test``,
            ``sequence_length``, ``vocabulary_size``, ``tokenizer``, ``cache``, see `alma_env.text.text_stream`; without
            ``train`` and ``valid`` it streams the little text that comes with the package.

    Raises:
        ValueError: an unknown id, or a keyword's value that breaks its rule.
        TypeError: an unknown keyword.
        DataUnavailableError: the data set is neither on disk nor to be downloaded.

    Example:
        >>> env = make("Digits-ALMA-v0", ticks=10)
        >>> observation, info = env.reset(seed=0)
        >>> info["tick"], info["error"]
        (0, 0.9)
    """
    known = [*PROTOCOLS, ARRAYS_ID, TEXT_ID]
    if id.removesuffix("-v0").endswith(("-Wait", "-Surrogate")) and id in gym.registry:
        raise ValueError(f"id={id!r}: it is no stream; make it with gymnasium.make('alma_env:{id}')")
    if id not in known:
        raise ValueError(f"id={id!r}: unknown environment; the ids are {', '.join(known)}")
    if "data" in keywords:
        raise TypeError(
            f"data={keywords['data']!r}: {id} has its own data; choose another id, or {ARRAYS_ID} with train=, test="
        )
    env = gym.make(id, disable_env_checker=True, **keywords).unwrapped
    assert isinstance(env, AlmaEnv)
    return env
