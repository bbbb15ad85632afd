"""One computation for several environments: each is charged an equal part, and accepts only its own predictor.

Networks of several runs with equal shapes can be trained in one batch, at the cost of training them one after another.
One meter counts the batch. Its FLOPs are divided exactly among the meters of the environments, and each environment
accepts the parameters that were given to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from alma_env.metering.meter import Meter
from alma_env.metering.provenance import checksum
from alma_env.metering.tally import Charges

SHARED = "a part of work shared by"  # prefix of the entry in `Row.declared`; the number of runs follows


class Shares:
    """The predictors of a shared computation, by the meter that they are given to."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self.meters = tuple(meters)
        self.given: list[list[nn.Module]] = [[] for _ in self.meters]

    def give(self, meter: Meter, predictor: nn.Module) -> None:
        """Assign a predictor, trained in the running block, to the environment with this meter.

        Raises:
            ValueError: the meter is not one of the computation's meters.
        """
        for known, predictors in zip(self.meters, self.given, strict=True):
            if known is meter:
                predictors.append(predictor)
                return
        raise ValueError("give: the meter is not one of this computation's meters; pass it to shared(meters)")


@contextmanager
def shared(meters: Sequence[Meter]) -> Iterator[Shares]:
    """Charge the work in this block to several meters, an equal part of the FLOPs of each phase to each meter.

    Use it for a batch in which each environment has the same work. Assign the trained predictors to the environments
    with `Shares.give`; ``env.step`` refuses other predictors of the batch as unmetered. A ledger alone does not prove
    that the other meters belong to runs; therefore its rows state in ``declared`` that work was shared.

    Raises:
        ValueError: there is no meter, or one meter is passed twice; one predictor, or a part of it, was given to
            several environments.
        RuntimeError: a meter is running; the FLOPs of a phase cannot be divided equally; FLOPs were declared, although
            each declaration belongs to one environment.
    """
    if not meters or len({id(meter) for meter in meters}) != len(meters):
        raise ValueError(
            f"{len(meters)} meters: must be different, and at least one; pass each environment's meter once"
        )
    if any(meter.running for meter in meters):
        raise RuntimeError("a meter is running: share a computation outside of the meters' `with meter:` blocks")
    shares, whole = Shares(meters), Meter()
    with whole:
        yield shares
    _require_separate_predictors(shares)
    part = {"counted": _divided(whole, len(meters)), "declared": {}, "reasons": [f"{SHARED} {len(meters)} runs"]}
    for meter, predictors in zip(shares.meters, shares.given, strict=True):
        meter.include(part)
        for predictor in predictors:
            meter.adopt(whole, predictor)


def _divided(whole: Meter, parts: int) -> Charges:
    if whole.declared:
        raise RuntimeError(
            f"{whole.declared_flops} FLOPs declared in a shared computation: declared FLOPs belong to one environment; "
            "declare them to its meter"
        )
    counted = whole.pending()["counted"]
    for phase, *counts in counted:
        if any(count % parts for count in counts):
            raise RuntimeError(
                f"phase {phase!r}: {sum(counts)} FLOPs cannot be divided equally among {parts} environments; give each "
                "environment the same work, or train them one after another"
            )
    return tuple((phase, forward // parts, backward // parts) for phase, forward, backward in counted)


def _require_separate_predictors(shares: Shares) -> None:
    """Each environment pays for a part only, so it must not deploy, or build upon, what another one has paid for."""
    owners: dict[int, int] = {}
    for number, predictors in enumerate(shares.given):
        for parameter in filter(_is_distinctive, nn.ModuleList(predictors).parameters()):
            if owners.setdefault(checksum(parameter.untyped_storage()), number) != number:
                raise ValueError(
                    "one predictor, or a part of it, was given to several environments of a shared computation: each "
                    "environment is charged only a part of the work; give each environment its own predictor"
                )


def _is_distinctive(parameter: Tensor) -> bool:
    """Return whether equal values in two networks show a copy; constant values, such as zeros, do not show it."""
    values = parameter.detach().flatten()
    return bool(values.numel() > 1 and values.isfinite().all() and (values != values[0]).any())
