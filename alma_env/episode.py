"""The state of an episode between two ticks, and the pending halves of ``reset`` and ``step``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from alma_env.data.stream import Stream
from alma_env.ledger import Ledger, Row
from alma_env.metering.meter import Meter
from alma_env.metering.tally import Charge
from alma_env.scoring.evaluation import Answer
from alma_env.scoring.fingerprint import Fingerprint, Kind
from alma_env.scoring.incremental import ScoredEnsemble
from alma_env.text.stream import TextStream


@dataclass(frozen=True)
class PendingAnswer:
    """The result of the first half of ``step`` or ``reset``: what the second half will enter into the ledger."""

    tick: int
    answer: Answer
    mark: Fingerprint | None = None  # of the new predictor; None if the deployed one, or the uniform guess, answers
    scored: ScoredEnsemble | None = None  # of an ensemble that is scored incrementally
    over_budget: bool = False  # a budget is broken, so that the deployed predictor stays to the end


@dataclass(frozen=True)
class PendingReset:
    """The result of the first half of ``reset``."""

    seed: int | None  # as passed
    stream: Stream | TextStream
    answer: PendingAnswer  # at tick 0
    clock: float  # ``time.perf_counter()`` when the reset started


@dataclass(frozen=True)
class Episode:
    """The state of an episode between two ticks. ``Episode()`` is the state before the first reset."""

    stream_seed: int | None = None
    ledger: Ledger = field(default_factory=Ledger)  # the only part that grows in place
    comp: int = 0  # FLOPs of the entered charges; `Ledger.comp` adds all rows, which takes longer at every tick
    deployed: Fingerprint | None = None  # None for the uniform guess
    known: frozenset[str] = frozenset()  # content hashes of all tensors and arrays that were deployed in this episode
    total_at_deployment: int = 0  # FLOPs charged before the last deployment
    declared_at_deployment: int = 0  # FLOPs declared before the last deployment
    steady_flops: Mapping[Kind, float] = field(default_factory=dict)  # per example, if all batches had the same cost
    clock: float = field(default_factory=time.perf_counter, compare=False)  # when the last row was entered; not saved

    def deploy(self, pending: PendingAnswer, meter: Meter) -> Episode:
        """Return the state after the deployment of a pending answer's predictor, if it has a new one."""
        mark = pending.mark
        if mark is None:
            return self
        steady_flops = dict(self.steady_flops)
        if pending.scored is None and (kind := mark.kind) is not None:
            if pending.answer.steady:
                steady_flops[kind] = pending.answer.inference_flops
            else:
                steady_flops.pop(kind, None)
        return replace(
            self,
            deployed=mark,
            known=self.known.union(mark.tensors, mark.arrays),
            total_at_deployment=meter.total,
            declared_at_deployment=meter.declared_total,
            steady_flops=steady_flops,
        )

    def enter(self, answer: Answer, charge: Charge, *, refused: bool) -> Episode:
        """Append the row of the next tick to the ledger, and return the state after it."""
        now = time.perf_counter()
        deployed = self.deployed
        self.ledger.append(
            Row(
                tick=len(self.ledger),
                error=answer.error,
                parameters=deployed.parameters if deployed else 0,
                buffers=deployed.buffers if deployed else 0,
                inference_flops=answer.inference_flops,
                flops=dict(charge.flops),
                paper_flops=charge.paper_flops,
                declared=tuple(charge.declared),
                digest=deployed.digest if deployed else "",
                refused=refused,
                seconds=now - self.clock,
                registered=charge.registered,
            )
        )
        return replace(self, comp=self.comp + charge.total, clock=now)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; the ledger as JSON lines."""
        return {
            "stream_seed": self.stream_seed,
            "ledger": self.ledger.to_json(),
            "deployed": None if self.deployed is None else self.deployed.to_dict(),
            "known": sorted(self.known),
            "total_at_deployment": self.total_at_deployment,
            "declared_at_deployment": self.declared_at_deployment,
            "steady_flops": [[*kind, flops] for kind, flops in self.steady_flops.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Episode:
        """Read the return value of ``to_dict``, also from JSON; other keys are ignored."""
        ledger = Ledger.from_json(values["ledger"])
        return cls(
            stream_seed=int(values["stream_seed"]),
            ledger=ledger,
            comp=ledger.comp,
            deployed=None if values["deployed"] is None else Fingerprint.from_dict(values["deployed"]),
            known=frozenset(values["known"]),
            total_at_deployment=values["total_at_deployment"],
            declared_at_deployment=values.get("declared_at_deployment", 0),  # missing in states from before 2026-11-22
            steady_flops={
                (structure, parameters, buffers): flops
                for structure, parameters, buffers, flops in values["steady_flops"]
            },
        )
