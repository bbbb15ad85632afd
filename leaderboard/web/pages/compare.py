"""Two submissions side by side: numbers with their difference over common seeds, curves, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agents.statistics import Interval, paired
from leaderboard.errors import NotFoundError
from leaderboard.web.charts import curves
from leaderboard.web.pages.asked import AskedError, whole_number
from leaderboard.web.pages.boards import COLUMNS
from leaderboard.web.pages.described import Described, describe, is_rate, state_of
from leaderboard.web.pages.render import error_page, html, remembered, text
from leaderboard.web.pages.shared import shared

router = APIRouter()


@dataclass(frozen=True)
class Difference:
    """A number of both.

    Attributes:
        metric: its name.
        a: of the first, None where it has none.
        b: of the second.
        between: a − b, paired over the seeds that both have; None where they have none in common.
    """

    metric: str
    a: Interval | None
    b: Interval | None
    between: Interval | None

    @property
    def better(self) -> str:
        """``a`` or ``b`` where the interval of the difference leaves zero out; smaller is better."""
        if self.between is None or self.between.half is None or abs(self.between.mean) <= self.between.half:
            return ""
        return "a" if self.between.mean < 0 else "b"


@dataclass(frozen=True)
class Setting:
    """A hyper-parameter of both; None where one has it not."""

    name: str
    a: object
    b: object


@dataclass(frozen=True)
class Comparison:
    """Two submissions, side by side.

    Attributes:
        a: the first.
        b: the second.
        comparable: whether they are of one board, so that their numbers mean the same.
        differences: by metric.
        settings: configuration.
        common_seeds: how many seeds both have.
    """

    a: Described
    b: Described
    comparable: bool
    differences: tuple[Difference, ...]
    settings: tuple[Setting, ...]
    common_seeds: int

    def picture(self) -> Markup | None:
        """Both error curves, None where there are not two of the same board."""
        if not self.comparable or self.a.played is None or self.b.played is None:
            return None
        both = [self.a.played.curve, self.b.played.curve]
        rate = is_rate(self.a.found.manifest.env)
        return curves.draw(both, measure=self.a.measure, is_rate=rate, id="comparison")


def compare(request: Request) -> Response:
    """Two submissions, or a form that asks which."""
    query = request.query_params
    ticked = query.getlist("id")
    if len(ticked) == 2:
        root = request.scope.get("root_path", "").rstrip("/")
        try:
            a, b = (whole_number("id", number) for number in ticked)
        except AskedError as error:
            return error_page(request, 400, "This address asks for what there is not", [str(error)])
        return RedirectResponse(f"{root}/compare?a={a}&b={b}", 303)
    a_text, b_text = (query.get("a") or (ticked[0] if len(ticked) == 1 else "")).strip(), (query.get("b") or "").strip()
    if len(ticked) > 2:
        return _form(request, 400, "", "", [f"{len(ticked)} submissions: two are compared at a time; tick two"])
    if not (a_text and b_text):
        missing = ["one submission: two are compared; give the number of another one"] if a_text or b_text else []
        return _form(request, 400 if missing else 200, a_text, b_text, missing)
    try:
        ids = whole_number("a", a_text.removeprefix("#")), whole_number("b", b_text.removeprefix("#"))
    except AskedError as error:
        return _form(request, 400, a_text, b_text, [str(error)])
    common = shared(request)
    states = [state_of(common.engine, id) for id in ids]
    missing = [
        f"submission {id}: there is none of this number; it stands in the address of a submission's page"
        for id, state in zip(ids, states, strict=True)
        if state is None
    ]
    if missing:
        return _form(request, 404, a_text, b_text, missing)
    version = (*states, common.versions.board())

    def make() -> str:
        found = side_by_side(describe(common, ids[0]), describe(common, ids[1]))
        return text(request, "compare.html", section="boards", it=found, columns=COLUMNS)

    try:
        return remembered(request, ("compare", ids), version, make)
    except NotFoundError as error:  # taken away between the look and the reading
        return _form(request, 404, a_text, b_text, [str(error)])


def _form(request: Request, status: int, a: str, b: str, problems: list[str]) -> Response:
    return html(request, "compare_form.html", status, section="boards", a=a[:20], b=b[:20], wrong=problems)


def side_by_side(a: Described, b: Described) -> Comparison:
    """Compare two submissions."""
    comparable = (a.found.manifest.env, a.found.rules_version) == (b.found.manifest.env, b.found.rules_version)
    differences = []
    for metric, _, _ in COLUMNS:
        of_a, of_b = _by_seed(a, metric), _by_seed(b, metric)
        between = paired(of_a, of_b) if comparable else None
        differences.append(Difference(metric, a.intervals.get(metric), b.intervals.get(metric), between))
    names = dict.fromkeys([*a.found.manifest.hyperparameters, *b.found.manifest.hyperparameters])
    settings = [
        Setting("method", a.found.manifest.method, b.found.manifest.method),
        Setting("seeds", _seeds(a), _seeds(b)),
        *(
            Setting(name, a.found.manifest.hyperparameters.get(name), b.found.manifest.hyperparameters.get(name))
            for name in names
        ),
    ]
    common = {run.seed for run in a.found.runs} & {run.seed for run in b.found.runs}
    return Comparison(a, b, comparable, tuple(differences), tuple(settings), len(common))


def _by_seed(one: Described, metric: str) -> Mapping[int, float]:
    return {run.seed: float(getattr(run, metric)) for run in one.found.runs}


def _seeds(one: Described) -> str:
    return ", ".join(str(seed) for seed in one.found.manifest.seeds)


router.add_route("/compare", compare, methods=["GET"], include_in_schema=False)
