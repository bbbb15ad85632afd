"""The board's API from Python: send submissions, wait for them, read standings and ledgers.

    from leaderboard.client import Client

    with Client("https://board.example.org", token="alma_…") as board:
        sent = board.submit("my_agent")
        print(board.wait(sent.id).state)
        for line in board.standings("Digits-ALMA-v0").lines:
            print(line.place, line.name, line.cer.text())

What is safe to repeat is repeated when the server or the way to it fails: reading, and sending a submission, since the
same files are one submission however often they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from alma_env import Ledger
from leaderboard import package as packages
from leaderboard import remote
from leaderboard.accounts import AccountInfo
from leaderboard.archive import from_zip
from leaderboard.check import check
from leaderboard.details import Details, Run
from leaderboard.errors import RemoteError, SubmissionError
from leaderboard.manifest import from_dict
from leaderboard.package import Package
from leaderboard.recent import Sent
from leaderboard.remote import moment
from leaderboard.rules import RULES_VERSION
from leaderboard.standings import Board, Metric, Standings
from leaderboard.submissions import Submitted
from leaderboard.tokens import NewToken, TokenInfo
from leaderboard.verification import Finding


@dataclass(frozen=True)
class Me:
    """Whom a token stands for, and what it may do."""

    account_id: int
    name: str
    role: str
    scopes: tuple[str, ...]


class Client:
    """A board on the web.

    All methods raise the errors of `leaderboard.errors`: `NotFoundError`, `SubmissionError`, `ConflictError`,
    `TooManyError`, and `RemoteError` for all else, such as a token that is not valid or a server that does not answer.
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
        """Talk to a board.

        Args:
            url: of its front page.
            token: of an account; reading what is public needs none.
            attempts: how often something that is safe to repeat is tried.
            timeout: in seconds, of one attempt.
            transport: how requests travel; for tests.

        Raises:
            ValueError: the URL is none of the web, or a number is not 1 or more.
        """
        self._remote = remote.Remote(url, token, attempts=attempts, timeout=timeout, transport=transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._remote.close()

    # Submissions.

    def submit(self, what: str | Path | Package) -> Submitted:
        """Check a folder, a zip or a package here, and send it. The same files sent again are the same submission.

        Raises:
            SubmissionError: the check found errors, here or there; all of them are told.
        """
        package = what if isinstance(what, Package) else packages.read(Path(what))
        report = check(package)
        if not report.ok:
            raise SubmissionError(report.errors)
        archive = package.to_zip()
        if len(archive) > 100_000:
            self.me()  # so that a token that is not valid is told before megabytes travel
        headers = {"Content-Type": "application/zip"}
        found = self._remote.json("POST", "/submissions", content=archive, headers=headers)
        return Submitted(found["id"], found["state"], found["new"])

    def status(self, submission_id: int) -> Details:
        """What became of a submission."""
        return _details(self._remote.json("GET", f"/submissions/{int(submission_id)}"))

    def wait(
        self,
        submission_id: int,
        *,
        timeout: float | None = None,
        poll: float = 5.0,
        progress: Callable[[Details], None] = lambda status: None,
    ) -> Details:
        """Wait until the verification of a submission has come to an end.

        Args:
            submission_id: of the submission.
            timeout: in seconds; None waits as long as it takes.
            poll: seconds between two looks.
            progress: called with what each look found.

        Raises:
            TimeoutError: it has not ended in time; it goes on there.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.status(submission_id)
            progress(found)
            if found.ended:
                return found
            if end is not None and time.monotonic() + poll > end:
                raise TimeoutError(
                    f"submission {submission_id}: {found.state} after {timeout:g} s; it goes on there, wait for longer"
                )
            time.sleep(poll)

    def recent(
        self, *, state: str | None = None, env_id: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[Sent]:
        """A page of the submissions, the last one first."""
        query = {"state": state, "env_id": env_id, "limit": limit, "offset": offset}
        found = self._remote.json("GET", "/submissions", params=query)
        return [Sent(**line | {"created_at": moment(line["created_at"])}) for line in found["lines"]]

    def ledger(self, submission_id: int, seed: int) -> Ledger:
        """The verified ledger of one seed."""
        return Ledger.from_json(self._remote.get(f"/submissions/{int(submission_id)}/ledgers/{int(seed)}").text)

    def package(self, submission_id: int) -> Package:
        """The files of a submission: everyone may have them once its result is published, before that its sender."""
        return from_zip(self._remote.get(f"/submissions/{int(submission_id)}/package").content)

    # Boards.

    def boards(self) -> list[Board]:
        """The environments and versions that have published results."""
        lists = ("methods", "budget_classes", "waiting_times")
        return [
            Board(**line | {name: tuple(line[name]) for name in lists}) for line in self._remote.json("GET", "/boards")
        ]

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
    ) -> Standings:
        """A page of an environment's standings; see `leaderboard.standings.standings`."""
        query = {
            "method": method,
            "budget_class": budget_class,
            "waiting_time": waiting_time,
            "sort": sort,
            "descending": descending,
            "limit": limit,
            "offset": offset,
        }
        found = self._remote.json("GET", f"/boards/{env_id}/{rules_version}", params=query)
        return Standings(tuple(map(remote.standing, found["lines"])), found["total"])

    def export(
        self, env_id: str, rules_version: str = RULES_VERSION, *, format: str = "csv", runs: bool = False
    ) -> bytes:
        """A whole board as the content of a file: csv, json or parquet; a line per submission, or per verified run."""
        query = {"format": format, "runs": runs}
        return self._remote.get(f"/boards/{env_id}/{rules_version}/export", params=query).content

    # Of maintainers, and of one's own account.

    def decide(self, submission_id: int, *, accept: bool, reason: str) -> Details:
        """Put a result on the board, or take it off, and say why. For maintainers."""
        path = f"/submissions/{int(submission_id)}/decision"
        return _details(self._remote.json("POST", path, json={"accept": accept, "reason": reason}))

    def retry(self, submission_id: int) -> Details:
        """Queue a failed verification again. For maintainers."""
        return _details(self._remote.json("POST", f"/submissions/{int(submission_id)}/retry", repeat=False))

    def me(self) -> Me:
        """Whom the token stands for."""
        found = self._remote.json("GET", "/me")
        return Me(found["account_id"], found["name"], found["role"], tuple(found["scopes"]))

    def tokens(self) -> list[TokenInfo]:
        """The account's tokens, the newest first."""
        return [remote.token(line) for line in self._remote.json("GET", "/tokens")]

    def make_token(self, name: str, *, scopes: Sequence[str] | None = None, days: float | None = None) -> NewToken:
        """A new token, which may do no more than the client's; its secret is in what this gives and nowhere else."""
        body = {"name": name, "scopes": None if scopes is None else list(scopes), "days": days}
        return remote.new_token(self._remote.json("POST", "/tokens", json=body, repeat=False))

    def revoke_token(self, token_id: int) -> None:
        """End a token."""
        self._remote.request("DELETE", f"/tokens/{int(token_id)}")

    def make_account(self, name: str, role: str = "submitter") -> tuple[AccountInfo, NewToken]:
        """A new account and its first token. For maintainers."""
        found = self._remote.json("POST", "/accounts", json={"name": name, "role": role}, repeat=False)
        return remote.account(found["account"]), remote.new_token(found["token"])

    def set_disabled(self, account_id: int, disabled: bool) -> AccountInfo:
        """Disable an account, or enable it again. For maintainers."""
        path = f"/accounts/{int(account_id)}/{'disable' if disabled else 'enable'}"
        return remote.account(self._remote.json("POST", path))


def _details(found: dict[str, Any]) -> Details:
    try:
        contact = found.pop("contact")
        manifest = from_dict({**found["manifest"], **({"contact": contact} if contact else {})})
    except SubmissionError as error:
        raise RemoteError(f"submission {found['id']}: its manifest is not one of this version; {error}") from error
    return Details(
        **{
            **found,
            "manifest": manifest,
            "created_at": moment(found["created_at"]),
            "verified_at": moment(found["verified_at"]) if found["verified_at"] else None,
            "runs": tuple(Run(**run) for run in found["runs"]),
            "findings": tuple(Finding(**finding) for finding in found["findings"]),
            "events": tuple((moment(event["at"]), event["kind"], event["text"]) for event in found["events"]),
        }
    )
