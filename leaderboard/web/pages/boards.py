"""The list of boards, and the standings of one board with its Pareto charts."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.board.listing import list_submissions
from leaderboard.board.standings import Board, standings
from leaderboard.rules import RULES_VERSION, TICKS, UNVERIFIED
from leaderboard.web.charts import pareto
from leaderboard.web.view import urls
from leaderboard.web.view.forms import redirect
from leaderboard.web.view.page_state import PageState, page_state
from leaderboard.web.view.render import cached_html, error_page, render
from leaderboard.web.view.urls import PAGE_LINES, BoardQuery

router = APIRouter()

LATEST = 6  # submissions on the first page

# Columns of the standings: metric, heading, meaning.
COLUMNS = (
    ("cer", "CER", "cumulative error rate: the sum of the test error over all ticks"),
    ("final_error", "Final error", "test error at the last tick"),
    ("comp", "Comp", "FLOPs of the whole stream"),
    ("paper_flops", "Paper FLOPs", "FLOPs by the paper's rule of thumb"),
    ("mem", "Mem", "sum of the parameters over all ticks"),
    ("seconds", "Time", "wall-clock time of one verified run"),
)


@dataclass(frozen=True)
class BoardSummary:
    """A board in the list of boards, and its submission with the smallest CER (None: the board is empty)."""

    board: Board
    best_id: int | None = None
    best_name: str = ""
    best_cer: float = 0.0


@dataclass(frozen=True)
class ParetoChart:
    """A Pareto chart and its table.

    Attributes:
        cost: ``Comp`` or ``Mem``.
        front: lines of the table, the cheapest first: submission, name, CER, cost.
        front_size: number of submissions on the front.
        drawn: number of submissions that are drawn and not on the front.
        others: number of submissions that are not on the front.
    """

    cost: str
    svg: Markup
    front: list[tuple[int, str, float, float]]
    front_size: int
    drawn: int
    others: int


def _empty(env_id: str, rules_version: str) -> Board:
    return Board(env_id, rules_version, 0, (), (), ())


def home(request: Request) -> Response:
    """List all boards."""
    state = page_state(request)

    def make() -> str:
        known = {(env_id, RULES_VERSION): _empty(env_id, RULES_VERSION) for env_id in TICKS if env_id not in UNVERIFIED}
        known |= {(board.env_id, board.rules_version): board for board in state.boards()}
        summaries = sorted((_summary(state, board) for board in known.values()), key=lambda one: -one.board.submissions)
        latest = list_submissions(state.engine, limit=LATEST)
        return render(request, "home.html", section="boards", summaries=summaries, latest=latest)

    return cached_html(request, "home", state.versions.latest(), make)


def _summary(state: PageState, board: Board) -> BoardSummary:
    if not board.submissions:
        return BoardSummary(board)
    points = state.points(board.env_id, board.rules_version)
    if not len(points.cer):  # all are damaged
        return BoardSummary(_empty(board.env_id, board.rules_version))
    best = int(points.cer.argmin())
    best_id = int(points.ids[best])
    return BoardSummary(board, best_id, state.names({best_id})[best_id], float(points.cer[best]))


def newest_rules(request: Request) -> Response:
    """Redirect from a board without a version to the board of the current rules."""
    query = urlencode(request.query_params.multi_items())
    url = urls.board(request.path_params["env_id"], RULES_VERSION)
    return redirect(request, f"{url}?{query}" if query else url, 307)


def board(request: Request) -> Response:
    """Show the standings of an environment under one version of the rules."""
    state = page_state(request)
    env_id, rules_version = request.path_params["env_id"], request.path_params["rules_version"]
    # Read before everything that the page shows: a page of earlier contents must not be kept for a later version.
    version = state.versions.board()
    known = {(found.env_id, found.rules_version): found for found in state.boards()}
    found = known.get((env_id, rules_version))
    if found is None and (env_id not in TICKS or rules_version != RULES_VERSION):
        what = f"{env_id[:80]}, rules {rules_version[:20]}"
        problem = f"{what}: there is no such board; choose one from the list of boards"
        return error_page(request, 404, "Board not found", [problem])
    query = BoardQuery.parse(env_id, rules_version, request.query_params)
    others = [key for key in known if key != (env_id, rules_version)]
    chosen = found or _empty(env_id, rules_version)
    return cached_html(request, query, version, lambda: _board_page(request, state, query, chosen, others))


def _board_page(
    request: Request, state: PageState, query: BoardQuery, board: Board, others: list[tuple[str, str]]
) -> str:
    page = standings(
        state.engine,
        query.env_id,
        query.rules_version,
        **query.filters,
        sort=query.sort,
        descending=query.descending,
        limit=PAGE_LINES,
        offset=query.offset,
    )
    key = (query.env_id, query.rules_version, *query.filters.values())
    charts, on_front = state.pareto_charts.get(key, state.versions.board(), lambda: _charts(state, query))
    return render(
        request,
        "board.html",
        section="boards",
        query=query,
        board=board,
        others=others,
        columns=COLUMNS,
        page=page,
        pages=max(1, -(-page.total // PAGE_LINES)),
        first=query.offset + 1,
        charts=charts,
        on_front=on_front,
        page_url=lambda number: query.url(page=number),
        method_urls={line.method: query.url(method=line.method, page=1) for line in page.lines},
    )


def _charts(state: PageState, query: BoardQuery) -> tuple[list[ParetoChart], dict[int, list[str]]]:
    """Return both charts, and for each submission on a front the costs of these fronts."""
    points = state.points(query.env_id, query.rules_version)
    charts: list[ParetoChart] = []
    on_front: dict[int, list[str]] = {}
    for cost, values, unit in (("Comp", points.comp, "FLOPs"), ("Mem", points.mem, "parameters × ticks")):
        cloud = points.cloud(values, query.filters)
        if not len(cloud.ids):
            continue
        selection = pareto.select(cloud)
        drawn = {int(cloud.ids[i]): int(i) for i in (*selection.front_dots, *selection.other_dots)}
        known = state.names(set(drawn))
        names = {index: known[id] for id, index in drawn.items()}
        for index in selection.front:
            on_front.setdefault(int(cloud.ids[index]), []).append(cost)
        svg = pareto.draw(cloud, selection, names, cost_name=cost, cost_unit=unit, id=f"pareto-{cost.lower()}")
        front = [
            (int(cloud.ids[i]), names[int(i)], float(cloud.error[i]), float(cloud.cost[i]))
            for i in selection.front_dots
        ]
        charts.append(ParetoChart(cost, svg, front, len(selection.front), len(selection.other_dots), selection.others))
    return charts, on_front


router.add_route("/", home, methods=["GET"])
router.add_route("/boards/{env_id}", newest_rules, methods=["GET"])
router.add_route("/boards/{env_id}/{rules_version}", board, methods=["GET"])
