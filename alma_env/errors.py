"""The errors of alma-env. Each message names the value, the rule that it breaks and the remedy."""

from __future__ import annotations


class AlmaError(Exception):
    """Base class of the errors that are particular to alma-env."""


class PredictorError(AlmaError, ValueError):
    """A predictor cannot be scored: it raised, mutated its input, or its logits break the contract."""


class UnmeteredTrainingError(AlmaError, RuntimeError):
    """A predictor's parameters changed without a charge on the meter."""


class UnknownCostError(AlmaError, RuntimeError):
    """An operation that computes has no entry in the table of costs."""


class DataUnavailableError(AlmaError, FileNotFoundError):
    """A data set is neither on disk nor to be had by download."""


class MissingPackageError(AlmaError, ImportError):
    """A package that an optional extra brings is not installed."""
