"""The comparisons of docs/preregistration*.md whose runs are in the package: names of ``--recorded``, their files."""

from __future__ import annotations

_RIVALS = ("learned-schedule", "learned-seeds", "learned-tuned", "learned-cifar")
# The third network; free: its runs at a price of 0 with the seeds 5 to 9, of which learned-seeds has no rivals.
_THIRD = ("learned-third", "learned-third-seeds", "learned-third-free", "learned-third-cifar")
_GROWING = ("learned-growth", "learned-gmoe-rivals")  # the rivals on learners that grow
_WIDTHS = ("learned-widths", "learned-third-widths")
FILES = {
    "schedules": (*_RIVALS, "learned-eighth"),
    "growth": (*_GROWING, "learned-sixth"),
    "eighth": (*_RIVALS, *_THIRD, *_WIDTHS, "learned-eighth", "learned-eighth-widths"),
    # of earlier days, with the network of that day
    "third": (*_RIVALS, *_THIRD),
    "seeds": ("learned-seeds", "learned-third-seeds"),
    "widths": _WIDTHS,
    "cifar": ("learned-cifar", "learned-third-cifar"),
    "seventh": (*_RIVALS, *_THIRD, "learned-seventh"),
    "noise": ("learned-schedule", "learned-third", "learned-noise"),
    "fifth": ("learned-schedule", "learned-third", "learned-noise", "learned-fifth"),
    "gmoe": ("learned-gmoe",),
    "sixth": (*_GROWING, "learned-after", "learned-gmoe-after", "learned-sixth"),
    "gmoe-after": ("learned-gmoe-rivals", "learned-gmoe-after", "learned-gmoe-successor"),
    "longer": ("learned-growth", "learned-successor", "learned-longer"),
    "told": ("learned-growth", "learned-successor", "learned-told"),
    "after": ("learned-growth", "learned-successor", "learned-after"),
    "earlier": ("learned-schedule", "learned-third", "learned-growth", "learned-successor", "learned-schedule-earlier"),
}
