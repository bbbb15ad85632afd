"""The errors of the leaderboard. Each message names the value, the rule that it breaks and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from alma_env.errors import AlmaError


class SubmissionError(AlmaError, ValueError):
    """A submission breaks rules.

    Attributes:
        problems: one message per broken rule, so that all are mended at once.
    """

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[SubmissionError], tuple[tuple[str, ...]]]:
        # An exception is rebuilt from its message alone, which here is the joined one.
        return type(self), (self.problems,)


class PackageError(SubmissionError):
    """A folder or an archive cannot be a submission's files."""


class DatabaseError(AlmaError, ValueError):
    """A database cannot be used: its URL, or the tables that are there."""


class NotFoundError(AlmaError, LookupError):
    """There is no such submission, account or job."""


class AccountError(AlmaError, ValueError):
    """An account or a token cannot be made so."""


class ConflictError(AlmaError, ValueError):
    """What there is already stands against it: a name that is taken, an account with as many tokens as it may have."""


class TooManyError(AlmaError, RuntimeError):
    """More than the board takes in a time.

    Attributes:
        seconds: after which to try again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(message)

    def __reduce__(self) -> tuple[type[TooManyError], tuple[str, float]]:
        return type(self), (str(self), self.seconds)


class RemoteError(AlmaError, RuntimeError):
    """A board on the web does not answer, or refuses.

    Attributes:
        status: of its answer; None where there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, int | None]]:
        return type(self), (str(self), self.status)


class LeaseLostError(AlmaError, RuntimeError):
    """A job is not this worker's any more: its lease ran out and was given to another, or the job has its result."""
