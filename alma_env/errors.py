"""The errors of alma-env. Each message names the value, the rule that it breaks and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AlmaError(Exception):
    """Base class of the errors of alma-env."""


class PredictorError(AlmaError, ValueError):
    """A predictor cannot be scored: it raised, changed its input, or returned invalid logits."""


class DivergedError(PredictorError):
    """A predictor's logits are NaN, or its loss is not finite, as after a training that diverged.

    Attributes:
        what: what cannot be scored, without the remedy.
    """

    def __init__(
        self, what: str, remedy: str = "deploy another predictor at this tick, or None to keep the previous one"
    ) -> None:
        super().__init__(what, remedy)
        self.what = what

    def __str__(self) -> str:
        return "; ".join(self.args)


def in_context(error: AlmaError, where: str) -> AlmaError:
    """Return an error of the same class, whose message begins with what it is about."""
    what, *rest = error.args
    return type(error)(f"{where}: {what}", *rest)


class UnmeteredTrainingError(AlmaError, RuntimeError):
    """A predictor's parameters changed without a charge on the meter."""


class UnknownCostError(AlmaError, RuntimeError):
    """An operation that computes has no entry in the table of costs."""


class ArgumentTypeError(AlmaError, TypeError):
    """An argument of an environment has the wrong type.

    Gymnasium repeats all keywords in the text of a TypeError, which may be whole arrays; this error leaves them out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.partition(" was raised from the environment creator for ")[0])


class DataUnavailableError(AlmaError, FileNotFoundError):
    """A data set is neither on disk nor available for download."""


class FileLockedError(AlmaError):
    """Another process holds the lock of a file."""


class MissingPackageError(AlmaError, ImportError):
    """A package of an optional extra is not installed."""


def how_to_install(extra: str) -> str:
    """Return the commands that install an extra of this project: from the package index, and in a clone.

    The second command is needed as long as the package index does not have this version.
    """
    in_a_clone = f"pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install 'alma-env[{extra}]', or in a clone of the repository {in_a_clone}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message: the known names that are most similar to a wrong one; an empty text if none is.

    Names that begin with the wrong one, if it has at least three characters, are more similar than others.

    >>> did_you_mean("epoch", ["epochs", "momentum"])
    '; did you mean epochs?'
    >>> did_you_mean("CIFAR", ["MNIST-ALMA-v0", "CIFAR10-ALMA-v0", "CIFAR100-ALMA-v0"])
    '; did you mean CIFAR10-ALMA-v0 or CIFAR100-ALMA-v0?'
    >>> did_you_mean("nothing", ["epochs", "momentum"])
    ''
    """
    lower = {name.lower(): name for name in known}
    longer = [name for name in lower if len(given) >= 3 and name.startswith(given.lower())]
    close = list(dict.fromkeys([*longer, *difflib.get_close_matches(given.lower(), lower, n=2, cutoff=0.65)]))[:2]
    return f"; did you mean {' or '.join(lower[name] for name in close)}?" if close else ""
