"""The comparison of two submissions: metrics with paired differences, error curves, hyper-parameters."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from agents.analysis.statistics import Interval, paired_difference
from leaderboard.board.submissions import no_submission
from leaderboard.errors import NotFoundError
from leaderboard.web.charts import curves
from leaderboard.web.pages.boards import COLUMNS
from leaderboard.web.view.forms import redirect
from leaderboard.web.view.page_state import page_state
from leaderboard.web.view.render import cached_html, html, render
from leaderboard.web.view.submission_view import SubmissionView, is_rate, state_and_event, submission_view
from leaderboard.web.view.urls import QueryError, whole_number

router = APIRouter()


@dataclass(frozen=True)
class Difference:
    """A metric of both submissions.

    Attributes:
        a: interval of the first submission; None if it has no score.
        b: interval of the second submission; None if it has no score.
        between: a − b, paired over the common seeds; None if there is no common seed.
    """

    a: Interval | None
    b: Interval | None
    between: Interval | None

    @property
    def better(self) -> str:
        """``a`` or ``b`` if the interval of the difference excludes zero, else empty. Smaller is better."""
        if self.between is None or self.between.half is None or abs(self.between.mean) <= self.between.half:
            return ""
        return "a" if self.between.mean < 0 else "b"


@dataclass(frozen=True)
class Pair:
    """Two submissions, side by side.

    Attributes:
        comparable: whether both are on the same board, so that their numbers have the same meaning.
        differences: one per metric.
        settings: lines of the table of hyper-parameters: name, value of a, value of b; None for a missing value.
        common_seeds: number of seeds that both have.
    """

    a: SubmissionView
    b: SubmissionView
    comparable: bool
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, object, object], ...]
    common_seeds: int

    def chart(self) -> Markup | None:
        """Both error curves; None if the submissions are not on the same board or have no runs."""
        if not self.comparable or self.a.ledgers is None or self.b.ledgers is None:
            return None
        both = [self.a.ledgers.curve, self.b.ledgers.curve]
        rate = is_rate(self.a.details.manifest.env)
        return curves.draw(both, measure=self.a.measure, is_rate=rate, id="comparison")


def compare(request: Request) -> Response:
    """Compare two submissions, or show a form to choose them."""
    query = request.query_params
    ticked = query.getlist("id")  # the checkboxes of the standings
    if len(ticked) == 2:
        a, b = (whole_number("id", number) for number in ticked)
        return redirect(request, f"/compare?a={a}&b={b}")
    texts = [(query.get("a") or (ticked[0] if len(ticked) == 1 else "")).strip(), (query.get("b") or "").strip()]
    if len(ticked) > 2:
        return _form(request, 400, ["", ""], [f"{len(ticked)} submissions: only two can be compared; select two"])
    if not all(texts):
        problems = ["one submission: a comparison needs two; give the number of another one"] if any(texts) else []
        return _form(request, 400 if problems else 200, texts, problems)
    try:
        ids = [whole_number(name, text.removeprefix("#")) for name, text in zip("ab", texts, strict=True)]
    except QueryError as error:
        return _form(request, 400, texts, [str(error)])
    state = page_state(request)
    found = [state_and_event(state.engine, id) for id in ids]
    missing = [str(no_submission(id)) for id, one in zip(ids, found, strict=True) if one is None]
    if missing:
        return _form(request, 404, texts, missing)

    def make() -> str:
        pair = side_by_side(*(submission_view(state, id) for id in ids))
        return render(request, "compare.html", section="boards", pair=pair, columns=COLUMNS)

    try:
        return cached_html(request, ("compare", *ids), (*found, state.versions.board()), make)
    except NotFoundError as error:  # deleted between the two queries
        return _form(request, 404, texts, [str(error)])


def _form(request: Request, status: int, texts: list[str], problems: list[str]) -> Response:
    a, b = (text[:20] for text in texts)
    return html(request, "compare_form.html", status, section="boards", a=a, b=b, problems=problems)


def side_by_side(a: SubmissionView, b: SubmissionView) -> Pair:
    """Compare two submissions."""
    first, second = a.details.manifest, b.details.manifest
    comparable = (first.env, a.details.rules_version) == (second.env, b.details.rules_version)
    differences = []
    for metric, _, _ in COLUMNS:
        by_seed = [{run.seed: float(getattr(run, metric)) for run in one.details.runs} for one in (a, b)]
        between = paired_difference(*by_seed) if comparable else None
        differences.append(Difference(a.intervals.get(metric), b.intervals.get(metric), between))
    settings: list[tuple[str, object, object]] = [
        ("method", first.method, second.method),
        ("seeds", ", ".join(map(str, first.seeds)), ", ".join(map(str, second.seeds))),
    ]
    for name in dict.fromkeys([*first.hyperparameters, *second.hyperparameters]):
        settings.append((name, first.hyperparameters.get(name), second.hyperparameters.get(name)))
    common = {run.seed for run in a.details.runs} & {run.seed for run in b.details.runs}
    return Pair(a, b, comparable, tuple(differences), tuple(settings), len(common))


router.add_route("/compare", compare, methods=["GET"])
