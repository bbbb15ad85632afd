"""Operations that list and return submissions, their ledgers and audits, and decisions of maintainers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from leaderboard.board import queue, results
from leaderboard.board.details import Details, Run, details, ledger_text, public
from leaderboard.board.listing import LONGEST_PAGE, SubmissionsPage, list_submissions
from leaderboard.board.submissions import package_of
from leaderboard.database.engine import reading
from leaderboard.database.tables import LARGEST_ID, State
from leaderboard.submission.claims import claimed_ledgers
from leaderboard.web.api.common import (
    NO_SUBMISSION,
    NO_TOKEN,
    TOKEN_OR_NONE,
    Database,
    MaybeCaller,
    Offset,
    Seed,
    SubmissionId,
    attached,
    errors,
    may_download,
    require,
    reviews,
)
from leaderboard.web.api.schemas import Audit, ClaimedRun, Decision
from leaderboard.web.guard.identity import Identity
from leaderboard.web.guard.limits import spend
from leaderboard.web.view.page_state import page_state

router = APIRouter(tags=["submissions"])
Reviewer = Annotated[Identity, Depends(require("review", maintainer=True))]
JSON_LINES = "application/x-ndjson"


@router.get("/submissions")
def submissions(
    engine: Database,
    state: Annotated[State | None, Query(description="list only this state")] = None,
    env_id: Annotated[
        str | None, Query(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="list only this environment's")
    ] = None,
    account_id: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="list only this account's")] = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="number of lines of the page")] = 50,
    offset: Offset = 0,
) -> SubmissionsPage:
    """Return a page of the submissions, the newest first."""
    return list_submissions(engine, state=state, env_id=env_id, account_id=account_id, limit=limit, offset=offset)


@router.get("/submissions/{submission_id}", responses=NO_SUBMISSION, openapi_extra=TOKEN_OR_NONE)
def submission(engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> Details:
    """Return the details of one submission."""
    found = details(engine, submission_id)
    if reviews(caller):
        return found
    return public(found, to_sender=caller is not None and caller.account_id == found.account_id)


@router.get(
    "/submissions/{submission_id}/ledgers/{seed}",
    response_class=Response,
    responses={
        **errors(_404="there is no such submission, or no verified run of this seed"),
        200: {
            "description": "the ledger: one JSON object per tick",
            "content": {JSON_LINES: {"schema": {"type": "string"}}},
        },
    },
)
def ledger(engine: Database, submission_id: SubmissionId, seed: Seed) -> Response:
    """Return the verified ledger of one seed, in the format of `alma run`."""
    return attached(ledger_text(engine, submission_id, seed), JSON_LINES, f"{submission_id}-seed-{seed}.jsonl")


@router.get("/submissions/{submission_id}/audit", responses=NO_SUBMISSION, openapi_extra=TOKEN_OR_NONE)
def audit(request: Request, engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> Audit:
    """Return the findings of the audit, and the claimed and verified numbers of each seed."""
    spend(request, "downloads")
    found = submission(engine, caller, submission_id)
    claims = {}
    if may_download(caller, found):
        claims = page_state(request).claims.get(submission_id, found.digest, lambda: _claims(engine, found))
    verified = {run.seed: run for run in found.runs}
    runs = [ClaimedRun(seed, claims.get(seed), verified.get(seed)) for seed in found.manifest.seeds]
    return Audit(found.findings, runs, found.environment, found.verified_at)


def _claims(engine: Database, found: Details) -> dict[int, Run]:
    with reading(engine) as session:
        package = package_of(session, found.id)
    claims, _ = claimed_ledgers(package.files, found.manifest)
    return {seed: Run.of(seed, claim.score()) for seed, claim in claims.items()}


@router.post(
    "/submissions/{submission_id}/decision",
    responses={**NO_TOKEN, **errors(_404="there is no such submission, or it has no result")},
)
def decide(engine: Database, caller: Reviewer, submission_id: SubmissionId, decision: Decision) -> Details:
    """Put a result on the board or take it off, and log the maintainer and the reason. Only for maintainers."""
    results.decide(engine, submission_id, caller.name, accept=decision.accept, reason=decision.reason)
    return submission(engine, caller, submission_id)


@router.post(
    "/submissions/{submission_id}/retry",
    responses={**NO_TOKEN, **errors(_404="there is no such submission, or nothing of it has failed")},
)
def retry(engine: Database, caller: Reviewer, submission_id: SubmissionId) -> Details:
    """Queue a failed verification, or one with a failed run, again with all its attempts. Only for maintainers."""
    queue.retry(engine, submission_id, account_id=caller.account_id)
    return submission(engine, caller, submission_id)
