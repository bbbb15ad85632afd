"""What the judge measured at a tick, for the audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Evidence:
    """Measurements at a tick that submitted code cannot influence, except for ``reported_flops``.

    Attributes:
        cpu_seconds: CPU time of the contestant's sandbox; None if it is not known.
        deployed: whether a program was deployed at this tick.
        changed: number of scalars in the program's tensors that are new or differ from the previous program, rounded
            up to blocks of 4 KiB. A program with other bytes has at least one.
        reported_flops: FLOPs of the tick as the contestant reports them.
        traced: number of operations of the program if its graph differs from the previous one's, else 0.
        parameter_elements: number of elements of the program's parameters, whatever their bits.
        stored: scalars of 32 bits in the program's tensors.
        hidden: scalars of 32 bits outside of the parameters, by place: ``buffers``, ``constants``, ``literals``.
        graph: scalars of 32 bits in the compressed graph.
        free_elements: elements per example that pass through operations without FLOPs.
        probe_flops: FLOPs per example on a random part of the test set.
        probe_elements: free elements per example there; both are 0 for the uniform guess.
        answer_flops: FLOPs per example on the test set in its order, as measured together with ``answer_elements``.
        answer_elements: free elements per example there.
        batch_dependent: share of test examples whose answer changes in another batch.
        packed: share of test examples with another class after the parameters were rounded.
    """

    tick: int
    cpu_seconds: float | None
    deployed: bool
    changed: int
    reported_flops: int
    traced: int = 0
    parameter_elements: int = 0
    stored: int = 0
    hidden: Mapping[str, int] = field(default_factory=dict)
    graph: int = 0
    free_elements: float = 0.0
    answer_flops: float = 0.0
    answer_elements: float = 0.0
    probe_flops: float = 0.0
    probe_elements: float = 0.0
    batch_dependent: float = 0.0
    packed: float = 0.0

    @property
    def held(self) -> int:
        """Scalars of 32 bits that the program computes with, wherever they are."""
        return self.stored + sum(self.hidden.get(place, 0) for place in ("constants", "literals"))
