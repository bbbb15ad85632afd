"""The comparisons of docs/preregistration.md whose runs are in the package: names of ``--recorded`` and their files."""

from __future__ import annotations

# free: runs of the network at a price of 0 with the seeds 5 to 9, of which learned-seeds has no rivals.
# tuned: rivals that were tuned for each learner.
_SCHEDULES = ("learned-schedule", "learned-seeds", "learned-free", "learned-tuned")
FILES = {
    "schedules": _SCHEDULES,
    "seeds": ("learned-seeds",),
    "widths": ("learned-widths",),
    "cifar": ("learned-cifar",),
    "growth": ("learned-growth", "learned-after", "learned-gmoe-after"),
    "gmoe": ("learned-gmoe",),
    "gmoe-after": ("learned-gmoe-after", "learned-gmoe-successor"),
    "longer": ("learned-growth", "learned-successor", "learned-longer"),
    "told": ("learned-growth", "learned-successor", "learned-told"),
    "after": ("learned-growth", "learned-successor", "learned-after"),
    "noise": ("learned-schedule", "learned-noise"),
    "fifth": ("learned-schedule", "learned-noise", "learned-fifth"),
    # and a network that was learned on CIFAR-10, too
    "seventh": (*_SCHEDULES, "learned-cifar", "learned-seventh"),
    # with the networks before
    "earlier": ("learned-schedule", "learned-growth", "learned-successor", "learned-schedule-earlier"),
}
