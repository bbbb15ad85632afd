"""The facts about data that the configuration of a run depends on, with or without loading the data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym

import alma_env
from agents.catalogue.recipes import EMNIST_NAMES, Recipe, recipe_for
from agents.policies.validation import check_types
from alma_env import AlmaEnv
from alma_env.data.datasets import TEXT
from alma_env.data.image_files import EMNIST_SPLITS
from alma_env.errors import did_you_mean
from alma_env.registration import PROTOCOL_KEYWORDS, PROTOCOLS, TEXT_ID, TEXT_TICKS, TINY_SIZES, keywords_of
from alma_env.text.corpus import TextCorpus

TEXT_TOKENS = 512  # tokens in a sequence of custom text
VOCABULARY = TextCorpus.vocabulary_size  # of custom text

_PROTOCOL_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(AlmaEnv).parameters.items()
    if name in PROTOCOL_KEYWORDS
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a data set.

    Attributes:
        train: number of examples of the stream, including validation parts; for text, sequences per mega-batch.
        test: number of examples of the test set.
        features: number of values in an example; 0 for text.
        classes: number of classes; 0 for text.
        valid: for text, number of sequences of the validation set.
        vocabulary: for text, size of the vocabulary.
        tokens: for text, number of tokens in a sequence.
    """

    train: int
    test: int
    features: int = 0
    classes: int = 0
    valid: int = 0
    vocabulary: int = 0
    tokens: int = 0


SIZES = {
    "MNIST": Sizes(60_000, 10_000, 784, 10),
    "FashionMNIST": Sizes(60_000, 10_000, 784, 10),
    "EMNIST": Sizes(697_932, 116_323, 784, 62),  # the split byclass
    "CIFAR10": Sizes(50_000, 10_000, 3_072, 10),
    "CIFAR100": Sizes(50_000, 10_000, 3_072, 100),
    "Digits": Sizes(1_400, 397, 64, 10),
    # The text of the package, 30 MB of novels, and the paper's 440 million words, about 580 million tokens.
    "Text": Sizes(411, 411, valid=217, vocabulary=1_000, tokens=64),
    "52 novels": Sizes(18_700, 970, valid=957, vocabulary=2_000, tokens=128),
    "custom text": Sizes(1_130_000, 1_130_000, valid=1_300, vocabulary=50_257, tokens=512),
}


@dataclass(frozen=True)
class DataFacts:
    """The facts about data and protocol that the configuration of a run depends on.

    Attributes:
        data: name of the data set.
        protocol: ``AlmaEnv.protocol()``; without an environment, the known part of it.
        ticks: number of mega-batches of the stream, B.
        input_shape: shape of one example; None if unknown.
        is_text: whether the examples are sequences of tokens.
    """

    data: str
    protocol: Mapping[str, Any]
    ticks: int
    input_shape: tuple[int, ...] | None
    is_text: bool

    @property
    def recipe(self) -> Recipe:
        """The paper's recipe for the data set."""
        return recipe_for(self.data)

    @property
    def sizes(self) -> Sizes:
        """Sizes of the data set; ValueError if they are unknown without loading it."""
        name = self.data
        if self.is_text:  # the length of a sequence stands for the size of the text
            length = self.protocol.get("sequence_length", 0)
            name = next((text for text in ("Text", "52 novels") if length <= SIZES[text].tokens), "custom text")
        if name in EMNIST_NAMES:
            name = "EMNIST"
        if name not in SIZES:
            raise ValueError(f"data={name!r}: only the sizes of {', '.join(SIZES)} are known without loading the data")
        sizes = SIZES[name]
        split = str(self.protocol.get("data", "")).partition("-")[2]
        if name == "EMNIST" and split in EMNIST_SPLITS:
            train, test, classes = EMNIST_SPLITS[split]
            return replace(sizes, train=train, test=test, classes=classes)
        return self._of_text(sizes) if self.is_text else sizes

    def _of_text(self, sizes: Sizes) -> Sizes:
        """Return the sizes of a text with this vocabulary, in sequences of this length: the tokens stay."""
        tokens = self.protocol.get("sequence_length", sizes.tokens)
        train, valid, test = (
            max(round(number * sizes.tokens / tokens), 1) for number in (sizes.train, sizes.valid, sizes.test)
        )
        vocabulary = self.protocol.get("vocabulary", sizes.vocabulary)
        return replace(sizes, train=train, valid=valid, test=test, vocabulary=vocabulary, tokens=tokens)


def without_wrappers(env: gym.Env[Any, Any]) -> AlmaEnv:
    """Return the stream inside the wrappers of ``gymnasium.make``.

    Raises:
        TypeError: the environment is no stream.
    """
    inner = env.unwrapped if isinstance(env, gym.Env) else env
    if not isinstance(inner, AlmaEnv):
        raise TypeError(
            f"env of type {type(inner).__name__}: agents learn on a stream; use alma_env.make('Digits-ALMA-v0') or "
            "gymnasium.make('alma_env:Digits-ALMA-v0')"
        )
    return inner


def facts_of(env: AlmaEnv) -> DataFacts:
    """Return the facts about an environment."""
    data = env.data
    return DataFacts(data.name, env.protocol(), env.ticks, tuple(data.input_shape), isinstance(data, TextCorpus))


def facts_for(env: str, keywords: Mapping[str, Any]) -> DataFacts:
    """Return the facts about an environment; only one that is not the paper's is created for them."""
    if env in PROTOCOLS or env == TEXT_ID:
        return known_facts(env, keywords)
    return facts_of(alma_env.make(env, **keywords))


def known_facts(env: str, keywords: Mapping[str, Any]) -> DataFacts:
    """Return the facts that are known without creating ``alma_env.make(env, **keywords)``.

    Raises:
        ValueError: the environment is not one of the paper's, ``ticks`` is not a positive integer, or
            ``valid_fraction`` is no number.
    """
    if env != TEXT_ID and env not in PROTOCOLS:
        hint = did_you_mean(env, (*PROTOCOLS, TEXT_ID))
        known = ", ".join(PROTOCOLS)
        raise ValueError(f"env={env!r}: must be one of the paper's environments; use one of {known}{hint}")
    is_text = env == TEXT_ID
    standard = {**_PROTOCOL_DEFAULTS, "ticks": TEXT_TICKS if is_text else PROTOCOLS[env]["ticks"]}
    if is_text:
        tiny = keywords.get("train", "tiny") == "tiny"
        standard["sequence_length"] = TINY_SIZES["sequence_length"] if tiny else TEXT_TOKENS
    protocol = standard | {name: value for name, value in keywords.items() if name in standard}
    protocol |= _data_protocol(env, keywords)
    ticks = protocol["ticks"]
    if isinstance(ticks, bool) or not isinstance(ticks, int) or ticks < 1:
        raise ValueError(f"ticks={ticks!r}: must be a whole number of mega-batches from 1, for example ticks=50")
    check_types(protocol, {"valid_fraction": float}, {"valid_fraction": 0.1})
    data = TEXT if is_text else PROTOCOLS[env]["data"]
    return DataFacts(data, protocol, ticks, None, is_text)


def _data_protocol(env: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return what keywords tell about the data, under the names that the protocol of the environment has for it."""
    if env == TEXT_ID and keywords.get("tokenizer") is None:  # the file of a tokenizer has its vocabulary
        default = TINY_SIZES["vocabulary_size"] if keywords.get("train", "tiny") == "tiny" else VOCABULARY
        return {"vocabulary": keywords.get("vocabulary_size", default)}
    if "split" in PROTOCOLS.get(env, {}):
        return {"data": f"{PROTOCOLS[env]['data']}-{keywords.get('split', PROTOCOLS[env]['split'])}"}
    return {}


def split_keywords(env_id: str, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keywords into those of an environment (``alma_env.make``) and those of an agent (``agents.make``)."""
    known = {"data", *keywords_of(env_id)}  # `alma_env.make` refuses "data" and names the remedy
    protocol = {key: value for key, value in keywords.items() if key in known}
    return protocol, {key: value for key, value in keywords.items() if key not in known}
