"""The contestant: run a submission's agent in a sandbox, on an environment whose data and scores are with the judge.

Started as ``python -m leaderboard.sandbox.sandbox_main leaderboard.verification.contestant READING WRITING FOLDER``.
The environment is `AlmaEnv` with its meter, its checks and its ledger. The judge sends one mega-batch at a time, and
scores each deployed predictor as a program. The judge trusts no message of this process: see
`leaderboard.verification.judge` and `leaderboard.verification.audit`.
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
from typing import Any, cast

import numpy as np
import torch._dynamo  # noqa: F401  used by submissions: loaded before the first tick
from numpy.typing import NDArray
from torch import nn

from agents import make  # noqa: F401  used by submissions: loads the learners before the first tick
from agents.runs.episode import play
from alma_env.data.datasets import DataSet
from alma_env.env import AlmaEnv, Observation
from alma_env.episode import PendingAnswer
from alma_env.errors import PredictorError
from alma_env.metering.tally import Charge
from alma_env.scoring.evaluation import Answer
from alma_env.scoring.fingerprint import Fingerprint
from leaderboard.program.export import Exporter
from leaderboard.program.graph import Program
from leaderboard.sandbox.channel import Channel, ChannelError, Message, as_array


@dataclass(frozen=True)
class RemoteStream:
    """A stream whose mega-batches the judge sends at their tick."""

    channel: Channel
    seed: int

    def megabatch(self, tick: int) -> Observation:
        """Request the mega-batch of a tick that has arrived."""
        self.channel.send(Message("megabatch", {"tick": tick}))
        reply = _reply(self.channel, "megabatch")
        pairs = zip(reply.blobs, reply.fields["arrays"], strict=True)
        train_x, train_y, valid_x, valid_y = (as_array(blob, header).copy() for blob, header in pairs)
        return {"train": {"x": train_x, "y": train_y}, "valid": {"x": valid_x, "y": valid_y}}


class RemoteEnv(AlmaEnv):
    """`AlmaEnv` whose data and scores are with the judge. ``run_seed`` is the seed of the stream and of the agent."""

    def __init__(self, channel: Channel, begin: Message) -> None:
        fields = begin.fields
        self.channel, self.run_seed = channel, int(fields["seed"])
        self._examples = as_array(begin.blobs[0], fields["examples"])
        self._exporter = Exporter(self._examples)
        super().__init__(_data(fields, self._examples), fields["ticks"], **fields["keywords"])

    def _make_stream(self, seed: int) -> Any:
        if seed != self.run_seed:
            rule = f"must be that of the judge's stream; reset with env.run_seed={self.run_seed}"
            raise ValueError(f"seed={seed}: {rule}")
        return RemoteStream(self.channel, seed)

    @property
    def examples_per_tick(self) -> int:
        """Training examples in each mega-batch."""
        x = cast("Any", self.observation_space)["train"]["x"]
        return int(x.shape[0])

    def validation_error(self, predictor: nn.Module) -> float:
        """Raise RuntimeError: the judge keeps the validation parts of later mega-batches."""
        raise RuntimeError("validation_error(): the sandbox has only arrived data; use observation['valid']")

    def _answer(
        self, tick: int, predictor: nn.Module, mark: Fingerprint, stream: Any, steady_flops: Mapping[Any, float]
    ) -> PendingAnswer:
        program: Program = self._exporter.program(predictor, mark)
        self.channel.send(Message("answer", {"tick": tick}, [program.graph_bytes(), program.tensor_bytes()]))
        reply = _reply(self.channel, "answered")
        # The judge keeps the error: an agent that knew it at every tick could tune on the test set.
        return PendingAnswer(tick, Answer(math.nan, reply.fields["flops"], steady=True), mark)

    def _enter(self, answered: Answer, charge: Charge, *, refused: bool) -> None:
        super()._enter(answered, charge, refused=refused)
        row = self.ledger[-1]
        fields = {
            "tick": row.tick,
            "flops": row.flops,
            "total": row.comp,
            "paper_flops": charge.paper_flops,
            "declared": list(row.declared),
            "registered": list(row.registered),
            "refused": refused,
        }
        self.channel.send(Message("enter", fields))


def _reply(channel: Channel, kind: str) -> Message:
    reply = channel.receive()
    if reply.kind == "refused":
        raise PredictorError(reply.fields["reason"])
    if reply.kind != kind:
        raise ChannelError(f"the judge sent {reply.kind!r} instead of {kind!r}")
    return reply


def _data(fields: Mapping[str, Any], examples: NDArray[Any]) -> DataSet:
    """Return a data set with the public properties only; its arrays have the true shapes, no content and no memory."""
    public = fields["data"]

    def empty(n: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.broadcast_to(np.zeros((), dtype), (n, *shape))

    shape, n = examples.shape[1:], int(fields["n_train"])
    data = object.__new__(DataSet)
    values = {
        **{name: public[name] for name in ("classes", "scale", "digest")},
        "name": public["data"],
        "train_x": empty(n, shape, examples.dtype),
        "train_y": empty(n, (), np.int64),
        "test_x": empty(1, shape, examples.dtype),
        "test_y": empty(1, (), np.int64),
        "mean": tuple(public["mean"]),
        "std": tuple(public["std"]),
        "source": None,
    }
    for name, value in values.items():
        object.__setattr__(data, name, value)
    return data


def run_agent(channel: Channel, folder: Path) -> None:
    """Make the agent and run it on the whole stream."""
    env = RemoteEnv(channel, channel.receive())
    agent = _load(folder).make_agent(env)
    untrained = getattr(agent, "predictor", None)
    options = {"predictor": untrained} if isinstance(untrained, nn.Module) else None
    observation, _ = env.reset(seed=env.run_seed, options=options)
    for _ in play(env, agent, observation):
        pass  # the environment sends each answer to the judge
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


def main(arguments: Sequence[str]) -> int:
    """Run the contestant and return the exit status; called by `leaderboard.sandbox.sandbox_main`."""
    reading, writing, folder = arguments
    channel = Channel(int(reading), int(writing))
    try:
        run_agent(channel, Path(folder))
    except ChannelError:
        return 3  # the judge has closed the connection and knows the reason
    except BaseException as error:
        trace = traceback.format_exc(limit=-20)
        failed = {"error": f"{type(error).__name__}: {error}"[:2000], "traceback": trace[-8000:]}
        with contextlib.suppress(ChannelError):
            channel.send(Message("failed", failed))
        return 1
    return 0
