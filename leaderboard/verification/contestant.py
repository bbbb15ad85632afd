"""Inside the sandbox: a submission's agent, and an environment that asks the judge for everything.

``python -m leaderboard.inside contestant READING WRITING FOLDER``. The environment is `AlmaEnv` with its meter, its
checks and its ledger; but mega-batches come from the judge, one at a time, and answers are scored there, on what is
deployed as a program. Nothing that this process says is taken for true: see `leaderboard.judge` and
`leaderboard.audit`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from alma_env.data import DataSet
from alma_env.env import AlmaEnv, Answered, Observation, paper_flops
from alma_env.errors import PredictorError
from alma_env.meter import Charge
from alma_env.predictor import Answer, Fingerprint
from leaderboard.exporting import Exporter
from leaderboard.program import Program
from leaderboard.wire import Channel, Message, WireError, as_array


@dataclass(frozen=True)
class RemoteStream:
    """Mega-batches that the judge sends when their tick has come."""

    channel: Channel
    seed: int

    def megabatch(self, tick: int) -> Observation:
        """Of a tick that has come."""
        self.channel.send(Message("megabatch", {"tick": tick}))
        reply = _reply(self.channel, "megabatch")
        arrays = [as_array(blob, about).copy() for blob, about in zip(reply.blobs, reply.fields["arrays"], strict=True)]
        train_x, train_y, valid_x, valid_y = arrays
        return {"train": {"x": train_x, "y": train_y}, "valid": {"x": valid_x, "y": valid_y}}


class RemoteEnv(AlmaEnv):
    """`AlmaEnv` whose data and scores are elsewhere.

    Attributes:
        run_seed: seed of this run, of the stream and for the agent's own draws.
    """

    def __init__(self, channel: Channel, begin: Message) -> None:
        fields = begin.fields
        self.channel, self.run_seed = channel, int(fields["seed"])
        self._examples = as_array(begin.blobs[0], fields["examples"])
        self._exporter = Exporter(self._examples)
        super().__init__(_data(fields, self._examples), fields["ticks"], **fields["keywords"])

    def _make_stream(self, seed: int) -> Any:
        if seed != self.run_seed:
            raise ValueError(
                f"seed={seed}: the judge plays the stream of env.run_seed={self.run_seed}; reset with that"
            )
        return RemoteStream(self.channel, seed)

    def megabatch(self, tick: int) -> Observation:
        """Mega-batch D_tick, if it has arrived."""
        arrived = min(self.tick + 1, self.ticks)
        if not 1 <= tick <= arrived:
            raise ValueError(f"tick={tick}: mega-batches 1 to {arrived} have arrived")
        stream: Any = self._stream
        found: Observation = stream.megabatch(tick)
        return found

    def validation_error(self, predictor: nn.Module) -> float:
        """Not here: the validation parts of mega-batches to come are with the judge."""
        raise RuntimeError("validation_error(): data that has not arrived is not in the sandbox")

    def _answer(
        self, tick: int, predictor: nn.Module, mark: Fingerprint, stream: Any, steady_flops: Mapping[Any, float]
    ) -> Answered:
        program: Program = self._exporter.program(predictor, mark)
        self.channel.send(Message("answer", {"tick": tick}, [program.graph_bytes(), program.tensor_bytes()]))
        reply = _reply(self.channel, "answered")
        # The error stays with the judge: told at every tick, it would be the test set to tune on.
        return Answered(tick, Answer(math.nan, reply.fields["flops"], steady=True), mark)

    def _enter(self, answered: Answer, charge: Charge, *, refused: bool) -> None:
        super()._enter(answered, charge, refused=refused)
        row = self.ledger[-1]
        fields = {
            "tick": row.tick,
            "flops": row.flops,
            "paper_flops": paper_flops(charge),
            "declared": list(row.declared),
            "refused": refused,
        }
        self.channel.send(Message("enter", fields))


def _reply(channel: Channel, kind: str) -> Message:
    reply = channel.receive()
    if reply.kind == "refused":
        raise PredictorError(reply.fields["reason"])
    if reply.kind != kind:
        raise WireError(f"the judge sent {reply.kind!r} where {kind!r} was due")
    return reply


def _data(fields: Mapping[str, Any], examples: NDArray[Any]) -> DataSet:
    """The data set with all that is public of it, and no example: arrays of the right shapes that take no memory."""
    about = fields["data"]

    def empty(n: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), dtype), (n, *shape))

    shape, n = examples.shape[1:], int(fields["n_train"])
    data = object.__new__(DataSet)
    values = {
        "name": about["data"],
        "train_x": empty(n, shape, examples.dtype),
        "train_y": empty(n, (), np.int64),
        "test_x": empty(1, shape, examples.dtype),
        "test_y": empty(1, (), np.int64),
        "classes": about["classes"],
        "scale": about["scale"],
        "mean": tuple(about["mean"]),
        "std": tuple(about["std"]),
        "digest": about["digest"],
        "source": None,
    }
    for name, value in values.items():
        object.__setattr__(data, name, value)
    return data


def play(channel: Channel, folder: Path) -> None:
    """One run: make the agent, take it through the stream."""
    env = RemoteEnv(channel, channel.receive())
    agent = _load(folder).make_agent(env)
    untrained = getattr(agent, "predictor", None)
    options = {"predictor": untrained} if isinstance(untrained, nn.Module) else None
    observation, _ = env.reset(seed=env.run_seed, options=options)
    while not env.done:
        with env.meter:
            predictor = agent.observe(observation)
        observation, *_ = env.step(predictor)
    channel.send(Message("end"))


def _load(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("agent", folder / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, str(folder))
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return module


def main(words: Sequence[str]) -> int:
    """Entry point, see `leaderboard.inside`; the exit status."""
    reading, writing, folder = words
    channel = Channel(int(reading), int(writing))
    try:
        play(channel, Path(folder))
    except WireError:
        return 3  # the judge has ended it, and knows why
    except BaseException as error:
        told = traceback.format_exc(limit=-20)
        failed = {"error": f"{type(error).__name__}: {error}"[:2000], "traceback": told[-8000:]}
        with contextlib.suppress(WireError):
            channel.send(Message("failed", failed))
        return 1
    return 0
