"""The Python client of a board's API: send submissions, wait for their verification, read standings and ledgers.

    from leaderboard.client import Client

    with Client("https://board.example.org", token="alma_…") as board:
        sent = board.submit("my_agent")
        print(board.wait(sent.id).state)
        for line in board.standings("Digits-ALMA-v0").lines:
            print(line.place, line.name, line.cer.text())

The client repeats a request if the server or the connection fails and if repeating is safe: reading is safe, and so is
sending a submission, because the same files are always one submission.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from alma_env import Ledger
from leaderboard.accounts.accounts import AccountInfo
from leaderboard.accounts.tokens import NewToken, TokenInfo
from leaderboard.board.details import Details
from leaderboard.board.listing import ListedSubmission, SubmissionsPage
from leaderboard.board.standings import Board, StandingsPage, StandingsQuery
from leaderboard.board.submissions import Submitted
from leaderboard.client import http
from leaderboard.database.tables import Metric, Role, Scope
from leaderboard.errors import SubmissionError
from leaderboard.rules import RULES_VERSION
from leaderboard.submission import zip_archive
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import check
from leaderboard.submission.zip_archive import from_zip


@dataclass(frozen=True)
class Me:
    """The account and the scopes of a token."""

    account_id: int
    name: str
    role: Role
    scopes: tuple[Scope, ...]


@dataclass(frozen=True)
class NewAccount:
    """An account and its first token, whose secret is shown once."""

    account: AccountInfo
    token: NewToken


class Client:
    """A board on the web.

    All methods raise the errors of `leaderboard.errors`: `NotFoundError`, `SubmissionError`, `ConflictError`,
    `TooManyError`, and `RemoteError` for other errors, such as an invalid token or a server that does not respond.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        attempts: int = 6,
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """Connect to a board.

        Args:
            url: URL of its front page.
            token: token of an account; public data needs no token.
            attempts: number of attempts for a request that is safe to repeat.
            timeout: timeout of one attempt in seconds.
            transport: transport of the requests; for tests.

        Raises:
            ValueError: the URL, the token or a number is invalid.
        """
        self._remote = http.Remote(url, token, attempts=attempts, timeout=timeout, transport=transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._remote.close()

    # Submissions.

    def submit(self, what: str | Path | Package) -> Submitted:
        """Check a folder, a zip or a package, and send it. The same files are always the same submission.

        Raises:
            SubmissionError: the local check or the board's check found errors; the exception lists all of them.
        """
        package = what if isinstance(what, Package) else zip_archive.read(Path(what))
        report = check(package)
        if not report.ok:
            raise SubmissionError(report.errors)
        archive = package.to_zip()
        if len(archive) > 100_000:
            self.me()  # fails early if the token is invalid
        headers = {"Content-Type": "application/zip"}
        return self._remote.read(Submitted, "POST", "/submissions", content=archive, headers=headers)

    def status(self, submission_id: int) -> Details:
        """Return the details of a submission."""
        return self._details("GET", f"/submissions/{int(submission_id)}")

    def wait(
        self,
        submission_id: int,
        *,
        timeout: float | None = None,
        poll: float = 5.0,
        progress: Callable[[Details], None] = lambda status: None,
    ) -> Details:
        """Wait until the verification of a submission has ended.

        Args:
            submission_id: number of the submission.
            timeout: maximum time to wait in seconds; None for no limit.
            poll: seconds between two requests; the last one is at the end of the time.
            progress: called with the details of each response.

        Raises:
            TimeoutError: the verification has not ended in time. It continues on the server.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.status(submission_id)
            progress(found)
            if found.ended:
                return found
            left = math.inf if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"submission {submission_id}: {found.state} after {timeout:g} s; it continues there, so wait longer"
                )
            time.sleep(min(poll, left))

    def recent(
        self, *, state: str | None = None, env_id: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[ListedSubmission]:
        """Return a page of the submissions, the newest first."""
        query = {"state": state, "env_id": env_id, "limit": limit, "offset": offset}
        return list(self._remote.read(SubmissionsPage, "GET", "/submissions", params=query).lines)

    def ledger(self, submission_id: int, seed: int) -> Ledger:
        """Return the verified ledger of one seed."""
        path = f"/submissions/{int(submission_id)}/ledgers/{int(seed)}"
        return Ledger.from_json(self._remote.request("GET", path).text)

    def package(self, submission_id: int) -> Package:
        """Return the files of a submission. Before its result is published, only its sender may have them."""
        return from_zip(self._remote.request("GET", f"/submissions/{int(submission_id)}/package").content)

    # Boards.

    def boards(self) -> list[Board]:
        """Return the environments and versions that have published results."""
        return self._remote.read(list[Board], "GET", "/boards")

    def standings(
        self,
        env_id: str,
        rules_version: str = RULES_VERSION,
        *,
        method: str | None = None,
        budget_class: int | None = None,
        waiting_time: int | None = None,
        sort: Metric = "cer",
        descending: bool = False,
        limit: int = 50,
        offset: int = 0,
    ) -> StandingsPage:
        """Return a page of an environment's standings; see `leaderboard.board.standings.StandingsQuery`."""
        query = StandingsQuery(method, budget_class, waiting_time, sort, descending, limit, offset)
        return self._remote.read(StandingsPage, "GET", f"/boards/{env_id}/{rules_version}", params=vars(query))

    def export(
        self, env_id: str, rules_version: str = RULES_VERSION, *, format: str = "csv", runs: bool = False
    ) -> bytes:
        """Return a whole board as the content of a csv, json or parquet file: a line per submission, or per run."""
        query = {"format": format, "runs": runs}
        return self._remote.request("GET", f"/boards/{env_id}/{rules_version}/export", params=query).content

    # Maintenance, and the caller's own account.

    def decide(self, submission_id: int, *, accept: bool, reason: str) -> Details:
        """Put a result on the board or take it off, and give the reason. Only for maintainers."""
        path = f"/submissions/{int(submission_id)}/decision"
        return self._details("POST", path, json={"accept": accept, "reason": reason})

    def retry(self, submission_id: int) -> Details:
        """Queue a failed verification again, or one with a failed run. Only for maintainers."""
        return self._details("POST", f"/submissions/{int(submission_id)}/retry", repeat=False)

    def me(self) -> Me:
        """Return the account and the scopes of the token."""
        return self._remote.read(Me, "GET", "/me")

    def tokens(self) -> list[TokenInfo]:
        """Return the account's tokens, the newest first."""
        return self._remote.read(list[TokenInfo], "GET", "/tokens")

    def make_token(self, name: str, *, scopes: Sequence[str] | None = None, days: float | None = None) -> NewToken:
        """Make a token with at most the scopes of the client's token. Only the returned value has its secret."""
        body = {"name": name, "scopes": None if scopes is None else list(scopes), "days": days}
        return self._remote.read(NewToken, "POST", "/tokens", json=body, repeat=False)

    def revoke_token(self, token_id: int) -> None:
        """Revoke a token."""
        self._remote.request("DELETE", f"/tokens/{int(token_id)}")

    def make_account(self, name: str, role: str = "submitter") -> tuple[AccountInfo, NewToken]:
        """Make an account and its first token. Only for maintainers."""
        made = self._remote.read(NewAccount, "POST", "/accounts", json={"name": name, "role": role}, repeat=False)
        return made.account, made.token

    def set_disabled(self, account_id: int, disabled: bool) -> AccountInfo:
        """Disable or enable an account. Only for maintainers."""
        path = f"/accounts/{int(account_id)}/{'disable' if disabled else 'enable'}"
        return self._remote.read(AccountInfo, "POST", path)

    def _details(self, method: str, path: str, **options: Any) -> Details:
        found = self._remote.read(Details, method, path, **options)
        return replace(found, manifest=replace(found.manifest, contact=found.contact))
