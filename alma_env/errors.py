"""The errors of alma-env. Each message names the value, the rule that it breaks and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AlmaError(Exception):
    """Base class of the errors of alma-env."""


class PredictorError(AlmaError, ValueError):
    """A predictor cannot be scored: it raised, changed its input, or returned invalid logits."""


class UnmeteredTrainingError(AlmaError, RuntimeError):
    """A predictor's parameters changed without a charge on the meter."""


class UnknownCostError(AlmaError, RuntimeError):
    """An operation that computes has no entry in the table of costs."""


class DataUnavailableError(AlmaError, FileNotFoundError):
    """A data set is neither on disk nor available for download."""


class FileLockedError(AlmaError):
    """Another process holds the lock of a file."""


class MissingPackageError(AlmaError, ImportError):
    """A package of an optional extra is not installed."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message: the known names that are most similar to a wrong one; an empty text if none is.

    >>> did_you_mean("epoch", ["epochs", "momentum"])
    '; did you mean epochs?'
    >>> did_you_mean("nothing", ["epochs", "momentum"])
    ''
    """
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), lower, n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(lower[name] for name in close)}?" if close else ""
