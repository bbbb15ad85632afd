"""A learned schedule: a small network that decides, once after each training, when and how to train next.

`agents.rl.learning.train_schedule` trains such networks on surrogates, for a range of prices. Two of them come with the
package as ``learned``: one for learners that grow, and one for the others.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agents.policies.choices import window
from agents.policies.learned.file_checks import DAMAGED, damage, digest_of, require_unchanged
from agents.policies.learned.known_states import KnownStates
from agents.policies.learned.next_training import MENUS, WITH_GROWTH, Menu
from agents.policies.learned.priced_features import FEATURES, PRICES, checked_prices, features_of
from agents.policies.progress import Decision, Progress
from agents.policies.waiting import RULE
from alma_env.files import replacing
from alma_env.metering import meter

SHIPPED = {grows: Path(__file__).with_name(f"schedule{'_growing' * grows}.npz") for grows in (False, True)}
BY_RULE = "rule"


@dataclass(frozen=True)
class ScheduleNetwork:
    """A network, and where it was trained.

    Attributes:
        layers: weights (outputs, inputs) and biases (outputs,) of each linear layer, float32; a tanh follows each but
            the last, which has one output for each decision of `menu`.
        known: the states of the training.
        about: what the network was trained on, as plain data.
    """

    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    known: KnownStates
    about: Mapping[str, Any]

    @property
    def menu(self) -> Menu:
        """The decisions between which the network chooses; KeyError if their number is that of no menu."""
        return {menu.stop + 1: menu for menu in MENUS}[len(self.layers[-1][1])]

    def decide(self, seen: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the best decision for features, float32 (18,) or (n, 18)."""
        return np.asarray(self.scores(seen).argmax(-1))

    def scores(self, seen: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the unnormalised log-probability of each decision, float32 (decisions,) or (n, decisions).

        Args:
            seen: features, float32 (18,) or (n, 18).
        """
        *hidden, (weight, bias) = self.layers
        units = torch.from_numpy(seen)
        with torch.inference_mode():
            for inner, offset in hidden:
                units = nn.functional.linear(units, torch.from_numpy(inner), torch.from_numpy(offset)).tanh()
            scores = nn.functional.linear(units, torch.from_numpy(weight), torch.from_numpy(bias))
        return scores.numpy()

    def save(self, path: Path) -> None:
        """Write the file that `LearnedSchedule` reads, in one step; OSError if that is impossible."""
        arrays: dict[str, Any] = {**vars(self.known)}
        arrays["about"] = np.frombuffer(json.dumps(dict(self.about)).encode(), np.uint8)
        for i, (weight, bias) in enumerate(self.layers):
            arrays |= {f"w_{i}": weight, f"b_{i}": bias}
        with replacing(path) as partial, open(partial, "wb") as raw:  # NumPy would add .npz to the partial's name
            np.savez_compressed(raw, **arrays)

    @classmethod
    def read(cls, path: Path) -> ScheduleNetwork:
        """Read a file that `save` wrote.

        Raises:
            ValueError: the file is missing, or holds no such network.
        """
        if not path.is_file():
            raise ValueError(f"policy={str(path)!r}: file not found; `alma policy train-schedule` writes such a file")
        try:
            with open(path, "rb") as raw, np.load(raw) as file:
                count = sum(name.startswith("w_") for name in file.files)
                layers = tuple((file[f"w_{i}"], file[f"b_{i}"]) for i in range(count))
                known = KnownStates.ranges(file["low"], file["high"])
                if "centres" in file:
                    parts = {"centres": file["centres"], "scale": file["scale"], "reach": float(file["reach"])}
                    known = dataclasses.replace(known, **parts)
                network = cls(layers, known, json.loads(file["about"].tobytes()))
                network._require_sound()
        except DAMAGED as error:
            raise ValueError(
                f"policy={str(path)!r}: not a learned schedule of this version ({damage(error)}); give "
                "a file that `alma policy train-schedule` wrote"
            ) from error
        return network

    def _require_sound(self) -> None:
        """Raise ValueError, TypeError, KeyError or IndexError if the parts do not fit together."""
        widths = [len(FEATURES), *(len(bias) for _, bias in self.layers)]
        shapes = [(weight.shape, bias.shape) for weight, bias in self.layers]
        fitting = [((after, before), (after,)) for before, after in itertools.pairwise(widths)]
        numbers = [menu.stop + 1 for menu in MENUS]
        if not self.layers or shapes != fitting or widths[-1] not in numbers:
            known = " or ".join(map(str, numbers))
            raise ValueError(f"layers of shapes {shapes}, for {len(FEATURES)} features and {known} decisions")
        self.known.require_sound()
        for array in itertools.chain(*self.layers):
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError("weights that are no float32, or not finite")
        for name in PRICES:
            low, high = self.about[name]
            if not 0 <= low <= high < math.inf:
                raise ValueError(f"{name}={self.about[name]}")


@lru_cache(maxsize=8)
def _network(path: str, digest: str) -> ScheduleNetwork:
    require_unchanged(path, digest)
    return ScheduleNetwork.read(Path(path))


@dataclass(frozen=True)
class LearnedSchedule:
    """A policy that decides after each training when and how to train next, or to stop.

    The decision depends on what was seen up to that training, and on the prices. It is computed again at each tick,
    and is the same until the next training. A price beyond those of the network's training counts as the nearest of
    them. Where the state is none that the network's training knows (`KnownStates`), or the stream has only one
    mega-batch, the rule `RULE` decides, and the record of the stage says so (``by``); the rule's waits, and its stop,
    leave no record. The rule grows a learner that can grow at each stage. The cost is charged to the running meter, in
    the phase ``policy``.

    Args:
        path: file that ``alma policy train-schedule`` wrote; by default the network of the package for such a learner.
        pass_price: errors that a full pass costs, see `agents.rl.DecisionEnv`.
        memory_price: errors per tick that the size of the untrained predictor costs.
        grows: whether the learner can grow.
        free_growth: whether growth leaves the FLOPs of its trainings as they are, as that of gens does; `agents.make`
            sets it to that of the method.

    Attributes:
        digest: digest of the file's bytes, which identifies the network in the record of a run.

    Raises:
        ValueError: the file is missing or holds no such network, or a price is negative or infinite.
    """

    path: str | Path | None = field(default=None, repr=False, compare=False)
    pass_price: float = 0.0
    memory_price: float = 0.0
    grows: bool = False
    free_growth: bool = False
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        path = SHIPPED[self.grows] if self.path is None else Path(self.path)
        ScheduleNetwork.read(path)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "digest", digest_of(path))
        for name, price in checked_prices(self).items():
            object.__setattr__(self, name, price)

    def as_plain_data(self) -> dict[str, Any]:
        """Return the record: digest and prices, but not the path, since the file may move before a run continues."""
        record = {
            "name": "learned-schedule",
            "digest": self.digest,
            "pass_price": self.pass_price,
            "memory_price": self.memory_price,
        }
        usual = _network(str(self.path), self.digest).menu is WITH_GROWTH
        record |= {} if self.grows == usual else {"grows": self.grows}
        return record | ({"free_growth": True} if self.grows and self.free_growth else {})

    def __call__(self, now: Progress, /) -> Decision:
        """Return the decision for this tick."""
        last = now.tick - now.pending
        network = _network(str(self.path), self.digest)
        with meter.phase("policy"):
            prices = {name: float(np.clip(getattr(self, name), *network.about[name])) for name in PRICES}
            seen = features_of(at_training(now), **prices, grows=self.grows, free_growth=self.free_growth)
            # The only tick of a stream with one mega-batch looks like the end of a longer one, where nothing is left.
            if now.ticks == 1 or not network.known.contain(seen[None]).all():
                rule = dataclasses.replace(RULE, growth="every") if self.grows else RULE
                return dataclasses.replace(rule(now), by=BY_RULE)
            decision = int(network.decide(seen))
        if now.tick < network.menu.next_ticks(decision, last, now.ticks):
            return Decision(train=False)
        chosen = network.menu.trainings[decision]
        newest = window(now.ticks) if chosen.replay == "last" else None
        replay = chosen.replay != "none" and last > 0
        later = now.stages > 0
        grow = chosen.grow and self.grows and later
        return Decision(True, replay, grow, newest if replay else None, chosen.restart and later)


def at_training(now: Progress) -> Progress:
    """Return the progress directly after the last training; at tick 1 with nothing gathered if there was none."""
    return dataclasses.replace(now, tick=max(now.tick - now.pending, 1), pending=0)
