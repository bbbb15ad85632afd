"""The errors of the leaderboard. Each message names the value, the rule that it breaks and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from alma_env.errors import AlmaError


class SubmissionError(AlmaError, ValueError):
    """A submission breaks rules.

    Attributes:
        problems: one message per broken rule, so that the authors can fix all of them at once.
    """

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class PackageError(SubmissionError):
    """A folder or an archive cannot be the files of a submission."""


class ProgramError(AlmaError):
    """Bytes are not a program, or a predictor cannot be written as a program."""


class DatabaseError(AlmaError, ValueError):
    """A database cannot be used because of its URL or its tables."""


class NotFoundError(AlmaError, LookupError):
    """The submission, account or job does not exist."""


class DamagedError(AlmaError, ValueError):
    """What the database has stored is not what the board wrote. A backup of the database may have it whole."""


class AccountError(AlmaError, ValueError):
    """The name, role or scopes of an account or a token break a rule."""


class ConflictError(AlmaError, ValueError):
    """The present state forbids the change: the name is taken, or the account has the maximum number of tokens."""


class TooManyError(AlmaError, RuntimeError):
    """More requests than the board accepts in a period.

    Attributes:
        seconds: until the next request can succeed.
    """

    def __init__(self, message: str, seconds: float = 0.0) -> None:  # pickle gives only the message
        self.seconds = seconds
        super().__init__(message)


class RemoteError(AlmaError, RuntimeError):
    """A board on the web does not answer, or refuses a request.

    Attributes:
        status: HTTP status of the answer; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class LeaseLostError(AlmaError, RuntimeError):
    """The worker no longer owns the job: the lease expired and another worker has it, or the job has a result."""
