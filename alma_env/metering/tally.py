"""FLOPs by phase: the tally while they are counted, and the charge when they have been counted."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Phase = str | None  # None: the phase that is current where the count is charged
Charges = tuple[tuple[Phase, int, int], ...]  # (phase, FLOPs outside of backward passes, FLOPs inside)


@dataclass(frozen=True)
class Charge:
    """FLOPs by phase; 1 multiply-add = 2 FLOPs.

    Attributes:
        flops: all FLOPs of each phase.
        forward: the counted FLOPs that autograd's backward pass did not execute, without declared FLOPs.
        declared: reasons of the charges that the learner declared because the meter could not count them.
        registered: operations that ran and whose cost, or freedom from cost, a user registered.
    """

    flops: Mapping[str, int] = field(default_factory=dict)
    forward: Mapping[str, int] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    registered: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """FLOPs over all phases."""
        return sum(self.flops.values())

    @property
    def paper_flops(self) -> int:
        """Training cost by the paper's rule of thumb, for comparison with closed forms.

        A training step costs three forward passes, that is 6 FLOPs per forward multiply-add on training examples,
        although the first layer needs no input gradient. Growth is added as executed; validation is left out.
        """
        return 3 * self.forward.get("training", 0) + self.flops.get("growth", 0)


def whole_flops(flops: int) -> int:
    """Return FLOPs as a plain int.

    Raises:
        TypeError: the FLOPs are not an integer.
        ValueError: the FLOPs are negative.
    """
    if isinstance(flops, bool) or not hasattr(flops, "__index__"):
        raise TypeError(f"flops={flops!r}: FLOPs must be an int; round first")
    plain = operator.index(flops)  # a subclass of int can define its own comparison and sum
    if plain < 0:
        raise ValueError(f"flops={plain}: FLOPs must not be negative; a charge cannot be taken back")
    return plain


class Tally:
    """Running count of FLOPs per phase, outside and inside of autograd's backward pass."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        # Whether an operation ran whose result lets Python code, or shapes, depend on tensor values.
        self.data_dependent = False
        self.clear()

    def enter(self, phase: Phase) -> Phase:
        """Make `phase` current and return the previous phase."""
        before = self.phase
        self.phase = phase
        self.current = self.counts.setdefault(phase, [0, 0])
        return before

    def clear(self) -> None:
        """Set all counts to zero; the phase stays."""
        self.counts: dict[Phase, list[int]] = {}  # [forward FLOPs, backward FLOPs]
        self.registered: set[str] = set()  # operations that ran and whose cost a user registered
        self.current = self.counts.setdefault(self.phase, [0, 0])

    def charges(self) -> Charges:
        """Return the counts of the phases that are not empty."""
        return tuple(
            (phase, forward, backward) for phase, (forward, backward) in self.counts.items() if forward or backward
        )

    def add(self, charges: Charges, registered: Iterable[str] = ()) -> None:
        """Add FLOPs that were counted elsewhere; FLOPs of phase None are added to the current phase.

        Raises:
            TypeError: FLOPs are not an integer.
            ValueError: FLOPs are negative. Nothing is added.
        """
        added = [(phase, whole_flops(forward), whole_flops(backward)) for phase, forward, backward in charges]
        for phase, forward, backward in added:
            counts = self.current if phase is None else self.counts.setdefault(phase, [0, 0])
            counts[0] += forward
            counts[1] += backward
        self.registered.update(registered)

    def total(self) -> int:
        """Return the FLOPs over all phases."""
        return sum(map(sum, self.counts.values()))
