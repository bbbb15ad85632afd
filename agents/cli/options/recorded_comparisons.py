"""The comparisons of docs/preregistration*.md whose runs are in the package: names of ``--recorded``, their files."""

from __future__ import annotations

_RIVALS = ("learned-schedule", "learned-seeds", "learned-tuned", "learned-cifar")
# The third network; free: its runs at a price of 0 with the seeds 5 to 9, of which learned-seeds has no rivals.
_THIRD = ("learned-third", "learned-third-seeds", "learned-third-free", "learned-third-cifar")
_GROWING = ("learned-growth", "learned-gmoe-rivals")  # the rivals on learners that grow
_WIDTHS = ("learned-widths", "learned-third-widths")
_EIGHTH = ("learned-eighth", "learned-eighth-widths")
_COMPARISONS = {
    "schedules": ("learners that do not grow, and the learned schedule of the package", (*_RIVALS, "learned-ninth")),
    "growth": ("learners that grow, and the learned schedule of the package", (*_GROWING, "learned-sixth")),
    "ninth": (
        "schedules, three more widths of the digits, and the network before",
        (*_RIVALS, "learned-widths", *_EIGHTH, "learned-ninth", "learned-ninth-widths"),
    ),
    "eighth": (
        "the network before, three more widths of the digits, and the third network",
        (*_RIVALS, *_THIRD, *_WIDTHS, *_EIGHTH),
    ),
    "sixth": (
        "growth, and the network before",
        (*_GROWING, "learned-after", "learned-gmoe-after", "learned-sixth"),
    ),
    # of earlier days, with the network of that day
    "third": ("the third network", (*_RIVALS, *_THIRD)),
    "seeds": ("its ten more seeds", ("learned-seeds", "learned-third-seeds")),
    "widths": ("its three more widths", _WIDTHS),
    "cifar": ("the third network on CIFAR-10", ("learned-cifar", "learned-third-cifar")),
    "noise": ("the fourth network", ("learned-schedule", "learned-third", "learned-noise")),
    "fifth": ("the fourth to the sixth", ("learned-schedule", "learned-third", "learned-noise", "learned-fifth")),
    "seventh": ("the seventh network", (*_RIVALS, *_THIRD, "learned-seventh")),
    "earlier": (
        "the networks of the first days",
        ("learned-schedule", "learned-third", "learned-growth", "learned-successor", "learned-schedule-earlier"),
    ),
    "longer": ("the third network of growth", ("learned-growth", "learned-successor", "learned-longer")),
    "told": ("its fourth one", ("learned-growth", "learned-successor", "learned-told")),
    "after": ("its fifth one", ("learned-growth", "learned-successor", "learned-after")),
    "gmoe": ("its second one with gmoe on MNIST", ("learned-gmoe",)),
    "gmoe-after": ("its fifth one there", ("learned-gmoe-rivals", "learned-gmoe-after", "learned-gmoe-successor")),
}
ABOUT = {name: about for name, (about, _) in _COMPARISONS.items()}
FILES = {name: files for name, (_, files) in _COMPARISONS.items()}
