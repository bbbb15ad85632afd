"""One computation for several environments: each is charged its own equal part, and knows its own predictor.

Networks of several runs that are alike may be trained side by side in one batch, which costs what they cost one after
another. The meter sees the batch as a whole; here its FLOPs are divided among the meters of the environments, exactly,
and each environment learns of the parameters that it was given, and of no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from alma_env.counting import Charges
from alma_env.meter import Meter
from alma_env.seals import checksum

SHARED = "a part of work shared by"  # how `Row.declared` begins where this was used; a number of runs follows


class Shares:
    """Which predictor of a shared computation belongs to which meter."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self.meters = tuple(meters)
        self.given: dict[int, list[nn.Module]] = {number: [] for number in range(len(self.meters))}

    def give(self, meter: Meter, predictor: nn.Module) -> None:
        """Say that this predictor, trained in the running block, is for the environment with this meter.

        Raises:
            ValueError: the meter has no part in the computation.
        """
        for number, known in enumerate(self.meters):
            if known is meter:
                self.given[number].append(predictor)
                return
        raise ValueError("give: the meter has no part in this computation; name it in shared(meters)")


@contextmanager
def shared(meters: Sequence[Meter]) -> Iterator[Shares]:
    """Charge what runs in this block to all the meters together, an equal part to each: FLOPs by phase.

    For a batch in which each environment has the same work. What was trained in it is told to the environments with
    `Shares.give`; a predictor that was not given is refused by ``env.step`` as unmetered. One ledger alone does not
    prove that the other meters belong to runs: its rows say that work was shared, where declared FLOPs have reasons.

    Raises:
        ValueError: there is no meter, or one stands there twice; one predictor, or a part of it, was given to
            several environments.
        RuntimeError: a meter is running; the FLOPs of a phase cannot be divided equally; FLOPs were declared, which
            belong to one environment each.
    """
    if not meters or len({id(meter) for meter in meters}) != len(meters):
        raise ValueError(f"{len(meters)} meters: a shared computation needs different ones, at least one")
    if any(meter.running for meter in meters):
        raise RuntimeError("a meter is running: share a computation outside of the meters' own `with meter:` blocks")
    shares, whole = Shares(meters), Meter()
    with whole:
        yield shares
    _require_own_predictors(shares)
    part = {"counted": _divided(whole, len(meters)), "declared": {}, "reasons": [f"{SHARED} {len(meters)} runs"]}
    for number, meter in enumerate(shares.meters):
        meter.include(part)
        for predictor in shares.given[number]:
            meter.adopt(whole, predictor)


def _divided(whole: Meter, parts: int) -> Charges:
    if whole.declared:
        raise RuntimeError(
            f"{whole.declared_flops} FLOPs declared in a shared computation: declare them to the meter that they "
            "belong to"
        )
    charges: list[tuple[str, int, int]] = []
    for phase, *counts in whole.pending()["counted"]:
        if any(count % parts for count in counts):
            raise RuntimeError(
                f"phase {phase!r}: {sum(counts)} FLOPs cannot be divided equally among {parts} environments; give each "
                "the same work, or train one after another"
            )
        forward, backward = (count // parts for count in counts)
        charges.append((phase, forward, backward))
    return tuple(charges)


def _require_own_predictors(shares: Shares) -> None:
    """Each pays a part of the work, so none may deploy what another one has paid for, nor build upon it."""
    owners: dict[int, int] = {}
    for number, predictors in shares.given.items():
        for parameter in (one for predictor in predictors for one in predictor.parameters()):
            if not _tells_apart(parameter):
                continue
            if owners.setdefault(checksum(parameter.untyped_storage()), number) != number:
                raise ValueError(
                    "one predictor, or a part of it, was given to several environments of a shared computation: each "
                    "is charged only a part of it; give each its own"
                )


def _tells_apart(parameter: Tensor) -> bool:
    """Whether no other network would have the same by itself, as it may have zeros that nothing has changed."""
    values = parameter.detach().flatten()
    return bool(values.numel() > 1 and values.isfinite().all() and (values != values[0]).any())
