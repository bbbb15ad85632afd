"""Construction of environments: ``make``, and the entry points that Gymnasium calls for the ids of `registration`."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from alma_env.data.arrays import from_arrays
from alma_env.data.datasets import DataSet, load
from alma_env.data.paths import from_path
from alma_env.env import AlmaEnv
from alma_env.errors import ArgumentTypeError, did_you_mean
from alma_env.registration import (
    ARRAYS_ID,
    ARRAYS_PROPERTIES,
    NAMESPACE,
    PROTOCOL_KEYWORDS,
    ROWS_KEYWORDS,
    STREAM_IDS,
    TEXT_ID,
    TEXT_TICKS,
    TINY_SIZES,
    keywords_of,
)
from alma_env.rendering.renderer import Renderer
from alma_env.text.corpus import TextCorpus
from alma_env.text.stream import tiny_text

if TYPE_CHECKING:
    from pathlib import Path


def make(id: str, **keywords: Any) -> AlmaEnv:
    """Make an environment by id, without Gymnasium's wrappers.

    Args:
        id: for example ``"CIFAR10-ALMA-v0"``; ``alma envs`` lists the ids. ``"alma_env/CIFAR10-ALMA-v0"`` is the
            same, and so is ``"alma_env:CIFAR10-ALMA-v0"``, the id for ``gymnasium.make``.
        keywords: keywords of the protocol: ``ticks``, ``valid_fraction``, ``partition``, ``flops_budget``,
            ``parameter_budget``, ``evaluation_batch_size``. ``render_mode``. Keywords of the data: ``root``,
            ``download``, and ``split`` for EMNIST. Keywords of ``Arrays-ALMA-v0``: ``data``, a file or folder, see
            `from_path`, or a `DataSet`; or ``train`` and ``test``, pairs of arrays; and ``name``, ``classes``,
            ``scale``, ``mean``, ``std``; with a folder of images or of Hugging Face also ``columns`` and ``folder``,
            see `from_dataset`. Keywords of ``Text-ALMA-v0``: ``train``, ``valid``, ``test``,
            ``sequence_length``, ``vocabulary_size``, ``tokenizer``, ``cache``, see
            `alma_env.text.stream.text_stream`. Without ``train`` and ``valid``, ``Text-ALMA-v0`` streams the small text
            that comes with the package.

    Raises:
        ValueError: the id is unknown, or the value of a keyword breaks its rule.
        TypeError: a keyword is unknown, or the id or the value of a keyword has the wrong type.
        DataUnavailableError: the data set is neither on disk nor available for download.

    Example:
        >>> env = make("Digits-ALMA-v0", ticks=10)
        >>> observation, info = env.reset(seed=0)
        >>> info["tick"], info["error"]
        (0, 0.9)
    """
    if not isinstance(id, str):
        raise ArgumentTypeError(f"id={reprlib.repr(id)}: must be the id of a stream, one of {', '.join(STREAM_IDS)}")
    id = id.removeprefix("alma_env:").removeprefix(NAMESPACE)
    if id not in STREAM_IDS:
        if id in gym.registry:
            raise ValueError(
                f"id={id!r}: not a stream; give an id such as Digits-ALMA-v0, or make this environment with "
                f"gymnasium.make('alma_env:{id}')"
            )
        raise ValueError(
            f"id={id!r}: unknown environment; the ids are {', '.join(STREAM_IDS)}{did_you_mean(id, STREAM_IDS)}"
        )
    if "data" in keywords and id != ARRAYS_ID:
        given = reprlib.repr(keywords["data"])
        raise TypeError(
            f"data={given}: the id {id} determines the data; choose another id, or {ARRAYS_ID} with data=FILE, or "
            "train=, test="
        )
    _require_known(id, keywords)  # `gymnasium.make` would take keywords of its own wrappers, which are left out here
    Renderer(keywords.get("render_mode"))  # and it would collect the frames of "rgb_array_list" in a wrapper
    if id == ARRAYS_ID and keywords.get("data") is None:
        keywords = _with_data(keywords)
    env = gym.make(id, disable_env_checker=True, **keywords).unwrapped
    assert isinstance(env, AlmaEnv)
    return env


def _with_data(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords with ``data`` in the place of ``train`` and ``test``.

    The environment's ``spec`` keeps all keywords, and a copy of the environment copies them. A `DataSet` is copied by
    reference.
    """
    train, test = keywords.get("train"), keywords.get("test")
    if train is None or test is None:
        return keywords
    _refuse_rows(keywords)
    properties = {name: keywords[name] for name in ARRAYS_PROPERTIES if name in keywords}
    others = {name: value for name, value in keywords.items() if name not in {"train", "test", *properties}}
    return others | {"data": from_arrays(train, test, **properties)}


def _refuse_rows(keywords: Mapping[str, Any]) -> None:
    for name in ROWS_KEYWORDS:
        if name in keywords:
            raise ValueError(
                f"{name}= with train= and test=: only data=PATH has rows, columns and a file; leave it out"
            )


def build(data: str, ticks: int, *, root: str | Path | None = None, download: bool = True, **keywords: Any) -> AlmaEnv:
    """Build the environment of a named data set.

    ``split`` goes to ``load`` (EMNIST only), the other keywords go to ``AlmaEnv``.
    """
    protocol = _protocol(f"{data}-ALMA-v0", keywords)
    return AlmaEnv(load(data, root=root, download=download, **keywords), ticks, **protocol)


def build_from_arrays(
    train: Any = None, test: Any = None, ticks: int = 50, *, data: Any = None, **keywords: Any
) -> AlmaEnv:
    """Build ``Arrays-ALMA-v0``: a stream from your own arrays, ``train=(x, y), test=(x, y)``, or from ``data``."""
    if data is not None:
        return _build_from_data(data, train, test, ticks, keywords)
    protocol = _protocol(ARRAYS_ID, keywords)
    if train is None or test is None:
        raise ValueError(
            f"{ARRAYS_ID} without data: pass the arrays, "
            f"alma_env.make('{ARRAYS_ID}', train=(x, y), test=(x, y), ticks=50), or data=FILE"
        )
    _refuse_rows(keywords)
    return AlmaEnv(from_arrays(train, test, **keywords), ticks, **protocol)


def _build_from_data(data: Any, train: Any, test: Any, ticks: int, keywords: dict[str, Any]) -> AlmaEnv:
    if train is not None or test is not None:
        raise ValueError(f"{ARRAYS_ID} with data= and train= or test=: give the data in one of the two ways")
    protocol = _protocol(ARRAYS_ID, keywords)
    if not isinstance(data, DataSet):
        return AlmaEnv(from_path(data, **keywords), ticks, **protocol)
    if keywords:
        raise ValueError(f"{next(iter(keywords))}= with a data set: it has this property already; leave it out")
    return AlmaEnv(data, ticks, **protocol)


def build_from_text(train: Any = "tiny", ticks: int = TEXT_TICKS, **keywords: Any) -> AlmaEnv:
    """Build ``Text-ALMA-v0``: a stream of token sequences from files of plain text.

    ``train="tiny"`` is the text that comes with the package, with a vocabulary and a sequence length for its size.
    """
    protocol = _protocol(TEXT_ID, keywords)
    if train == "tiny":
        for name in ("valid", "test"):
            if keywords.pop(name, None) is not None:
                raise ValueError(
                    f"{name} with train='tiny': the text that comes with the package includes its {name} text; "
                    f"leave {name} out, or pass train, too"
                )
        train, valid = tiny_text()
        keywords = TINY_SIZES | keywords | {"valid": valid}
    if keywords.get("valid") is None:
        raise ValueError(
            f"train={str(train)!r} without valid: text needs a separate validation set, because no part of a "
            f"mega-batch is used for validation; pass one, alma_env.make('{TEXT_ID}', train=FOLDER, valid=FILE)"
        )
    return AlmaEnv(TextCorpus(train, **keywords), ticks, **({"evaluation_batch_size": 8} | protocol))


def _protocol(id: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Remove the keywords of `AlmaEnv` from ``keywords`` and return them; the remaining ones must be the data's."""
    _require_known(id, keywords)
    return {name: keywords.pop(name) for name in (*PROTOCOL_KEYWORDS, "render_mode") if name in keywords}


def _require_known(id: str, keywords: Mapping[str, Any]) -> None:
    allowed = (*keywords_of(id), "render_mode")
    for name, value in keywords.items():
        if name not in allowed:
            known = ", ".join(allowed)
            raise ArgumentTypeError(
                f"{name}={reprlib.repr(value)}: unknown keyword here; the keywords are {known}"
                f"{did_you_mean(name, allowed)}"
            )


for _entry_point in (build, build_from_arrays, build_from_text):
    # `gymnasium.make` reads the render modes here, for example to collect the frames of "rgb_array_list".
    vars(_entry_point)["metadata"] = AlmaEnv.metadata
