"""Submissions as they are read: lists, one of them, its audit; and what maintainers decide."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from leaderboard import queue, review
from leaderboard.claims import claimed_ledgers
from leaderboard.details import Details, details, for_everyone, ledger_text
from leaderboard.details import Run as DetailsRun
from leaderboard.engine import reading
from leaderboard.recent import LONGEST_PAGE, recent
from leaderboard.submissions import package_of
from leaderboard.web import schemas
from leaderboard.web.api.common import (
    LARGEST_ID,
    NO_SUBMISSION,
    NO_TOKEN,
    TOKEN_OR_NONE,
    Database,
    MaybeCaller,
    Offset,
    Seed,
    SubmissionId,
    errors,
    may_download,
    require,
    reviews,
)
from leaderboard.web.identity import Identity
from leaderboard.web.limits import spend

router = APIRouter(tags=["submissions"])
Reviewer = Annotated[Identity, Depends(require("review", maintainer=True))]
JSON_LINES = "application/x-ndjson"


@router.get("/submissions", response_model=schemas.SubmissionsPage)
def submissions(
    engine: Database,
    state: Annotated[schemas.State | None, Query(description="in this state alone")] = None,
    env_id: Annotated[
        str | None, Query(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="for this environment alone")
    ] = None,
    account_id: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="of this account alone")] = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="lines of the page")] = 50,
    offset: Offset = 0,
) -> object:
    """A page of the submissions, the last one first."""
    lines, total = recent(engine, state=state, env_id=env_id, account_id=account_id, limit=limit, offset=offset)
    return {"lines": lines, "total": total}


@router.get(
    "/submissions/{submission_id}",
    response_model=schemas.Submission,
    responses=NO_SUBMISSION,
    openapi_extra=TOKEN_OR_NONE,
)
def submission(engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> object:
    """All of one submission but its files and its ledgers."""
    found = details(engine, submission_id)
    if not reviews(caller):
        found = for_everyone(found)
    is_sender = caller is not None and caller.account_id == found.account_id
    return {
        **vars(found),
        "contact": found.manifest.contact if is_sender or reviews(caller) else None,
        "events": [{"at": at, "kind": kind, "text": text} for at, kind, text in found.events],
    }


@router.get(
    "/submissions/{submission_id}/ledgers/{seed}",
    response_class=Response,
    responses={
        **errors(_404="there is no such submission, or no verified run of this seed"),
        200: {
            "description": "the ledger, one JSON object per tick",
            "content": {JSON_LINES: {"schema": {"type": "string"}}},
        },
    },
)
def ledger(engine: Database, submission_id: SubmissionId, seed: Seed) -> Response:
    """The verified ledger of one seed, as `alma run` writes ledgers."""
    return _attached(ledger_text(engine, submission_id, seed), JSON_LINES, f"{submission_id}-seed-{seed}.jsonl")


def _attached(text: str, media_type: str, name: str) -> Response:
    return Response(text, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get(
    "/submissions/{submission_id}/audit",
    response_model=schemas.Audit,
    responses=NO_SUBMISSION,
    openapi_extra=TOKEN_OR_NONE,
)
def audit(request: Request, engine: Database, caller: MaybeCaller, submission_id: SubmissionId) -> object:
    """What the audit noticed, and for each seed the claimed numbers beside the verified ones."""
    spend(request, "downloads")
    found = details(engine, submission_id)
    claims = _claims(engine, found) if may_download(caller, found) else {}
    verified = {run.seed: run for run in found.runs}
    return {
        "findings": found.findings,
        "environment": found.environment,
        "verified_at": found.verified_at,
        "runs": [
            {"seed": seed, "claimed": claims.get(seed), "verified": verified.get(seed)} for seed in found.manifest.seeds
        ],
    }


def _claims(engine: Database, found: Details) -> dict[int, DetailsRun]:
    with reading(engine) as session:
        package = package_of(session, found.id)
    claims, _ = claimed_ledgers(package.files, found.manifest)
    scores = {seed: claim.score() for seed, claim in claims.items()}
    return {
        seed: DetailsRun(seed, s.cer, s.mem, s.comp, s.paper_flops, s.final_error, s.seconds)
        for seed, s in scores.items()
    }


@router.post(
    "/submissions/{submission_id}/decision",
    response_model=schemas.Submission,
    responses={**NO_TOKEN, **errors(_404="there is no such submission, or it has no result yet")},
)
def decide(engine: Database, caller: Reviewer, submission_id: SubmissionId, decision: schemas.Decision) -> object:
    """Put a result on the board, or take it off. It is logged who did so and why. For maintainers."""
    review.decide(engine, submission_id, caller.name, accept=decision.accept, reason=decision.reason)
    return submission(engine, caller, submission_id)


@router.post(
    "/submissions/{submission_id}/retry",
    response_model=schemas.Submission,
    responses={**NO_TOKEN, **errors(_404="there is no such submission, or its verification did not fail")},
)
def retry(engine: Database, caller: Reviewer, submission_id: SubmissionId) -> object:
    """Queue a failed verification again, with all its attempts. For maintainers."""
    queue.retry(engine, submission_id, account_id=caller.account_id)
    return submission(engine, caller, submission_id)
