"""The boards: all of them, and the standings of one with its pictures."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leaderboard.recent import recent
from leaderboard.rules import RULES_VERSION, TICKS, UNVERIFIED
from leaderboard.standings import Board, standings
from leaderboard.web.charts import pareto
from leaderboard.web.pages import addresses
from leaderboard.web.pages.asked import PAGE_LINES, Asked, AskedError
from leaderboard.web.pages.render import error_page, remembered, text
from leaderboard.web.pages.shared import Shared, shared

router = APIRouter()

LATEST = 6  # submissions on the first page

# What the standings can be sorted by: name of the number, heading, meaning.
COLUMNS = (
    ("cer", "CER", "cumulative error rate: the sum of the test error over all ticks"),
    ("final_error", "Final error", "test error at the last tick"),
    ("comp", "Comp", "FLOPs spent on the whole stream"),
    ("paper_flops", "Paper FLOPs", "FLOPs by the paper's rule of thumb"),
    ("mem", "Mem", "sum of the parameters over all ticks"),
    ("seconds", "Time", "wall-clock time of one verified run"),
)


@dataclass(frozen=True)
class BoardLine:
    """A board in the list of all boards.

    Attributes:
        env_id: of the environment.
        rules_version: Major.Minor.
        ticks: mega-batches of the stream, None where this program does not know the environment.
        submissions: how many are shown.
        methods: how many different ones.
        best_id: the submission with the smallest CER, None where there is none.
        best_name: its name.
        best_cer: its CER.
    """

    env_id: str
    rules_version: str
    ticks: int | None
    submissions: int
    methods: int
    best_id: int | None = None
    best_name: str = ""
    best_cer: float = 0.0


@dataclass(frozen=True)
class ParetoPicture:
    """A Pareto picture and what stands below it.

    Attributes:
        cost: ``Comp`` or ``Mem``.
        id: of the picture on the page.
        svg: the picture.
        front: its front as lines: submission, name, CER, cost.
        front_size: how many are on the front.
        others: how many beside the front are drawn.
        others_in_all: how many there are.
    """

    cost: str
    id: str
    svg: Markup
    front: list[tuple[int, str, float, float]]
    front_size: int
    others: int
    others_in_all: int


def home(request: Request) -> Response:
    """All boards."""
    common = shared(request)

    def make() -> str:
        found = {(board.env_id, board.rules_version): board for board in common.boards()}
        keys = [(env_id, RULES_VERSION) for env_id in TICKS if env_id not in UNVERIFIED] + [
            key for key in found if key[1] != RULES_VERSION
        ]
        lines = [_board_line(common, key, found.get(key)) for key in dict.fromkeys([*keys, *found])]
        lines.sort(key=lambda line: -line.submissions)
        latest, total = recent(common.engine, limit=LATEST)
        return text(request, "home.html", section="boards", boards=lines, latest=latest, total=total)

    return remembered(request, "home", common.versions.latest(), make)


def _board_line(common: Shared, key: tuple[str, str], board: Board | None) -> BoardLine:
    ticks = TICKS.get(key[0])
    if board is None:
        return BoardLine(*key, ticks, 0, 0)
    points = common.points(*key)
    best = int(points.cer.argmin())
    best_id = int(points.ids[best])
    name = common.names({best_id})[best_id]
    return BoardLine(*key, ticks, board.submissions, len(board.methods), best_id, name, float(points.cer[best]))


def newest_rules(request: Request) -> Response:
    """A board without a version is that of the rules of today."""
    env_id = request.path_params["env_id"]
    query = f"?{request.url.query}" if request.url.query else ""
    root = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(root + addresses.board(env_id, RULES_VERSION) + query, 307)


def board(request: Request) -> Response:
    """The standings of an environment under one version of the rules."""
    common = shared(request)
    env_id, rules_version = request.path_params["env_id"], request.path_params["rules_version"]
    known = {(found.env_id, found.rules_version): found for found in common.boards()}
    found = known.get((env_id, rules_version))
    if found is None and (env_id not in TICKS or rules_version != RULES_VERSION):
        return error_page(
            request,
            404,
            "There is no such board",
            [f"{env_id[:80]}, rules {rules_version[:20]}: nothing was sent there; the first page has the boards"],
        )
    try:
        asked = Asked.of(env_id, rules_version, request.query_params)
    except AskedError as error:
        return error_page(request, 400, "This address asks for what there is not", [str(error)])
    empty = Board(env_id, rules_version, 0, (), (), ())
    others = [key for key in known if key != (env_id, rules_version)]
    return remembered(
        request, asked, common.versions.board(), lambda: _board_page(request, common, asked, found or empty, others)
    )


def _board_page(request: Request, common: Shared, asked: Asked, board: Board, others: list[tuple[str, str]]) -> str:
    page = standings(
        common.engine,
        asked.env_id,
        asked.rules_version,
        method=asked.method,
        budget_class=asked.budget_class,
        waiting_time=asked.waiting_time,
        sort=asked.sort,
        descending=asked.descending,
        limit=PAGE_LINES,
        offset=asked.offset,
    )
    filters = (asked.env_id, asked.rules_version, asked.method, asked.budget_class, asked.waiting_time)
    pictures, on_front = common.pictures.get(filters, common.versions.board(), lambda: _pictures(common, asked))
    return text(
        request,
        "board.html",
        section="boards",
        asked=asked,
        board=board,
        others=others,
        columns=COLUMNS,
        page=page,
        pages=max(1, -(-page.total // PAGE_LINES)),
        first=asked.offset + 1,
        pictures=pictures,
        on_front=on_front,
        page_address=lambda number: asked.address(page=number),
        method_address={line.method: asked.address(method=line.method, page=1) for line in page.lines},
    )


def _pictures(common: Shared, asked: Asked) -> tuple[list[ParetoPicture], dict[int, list[str]]]:
    """Both pictures, and which of them has which submission on its front."""
    points = common.points(asked.env_id, asked.rules_version)
    pictures: list[ParetoPicture] = []
    on_front: dict[int, list[str]] = {}
    for cost, values, unit in (("Comp", points.comp, "FLOPs"), ("Mem", points.mem, "parameters × ticks")):
        cloud = points.cloud(values, asked.method, asked.budget_class, asked.waiting_time)
        if not len(cloud.ids):
            continue
        chosen = pareto.choose(cloud)
        drawn = {int(cloud.ids[i]): int(i) for i in (*chosen.front_dots, *chosen.others)}
        known = common.names(set(drawn))
        names = {index: known[id] for id, index in drawn.items()}
        for index in chosen.front:
            on_front.setdefault(int(cloud.ids[index]), []).append(cost)
        pictures.append(
            ParetoPicture(
                cost,
                f"pareto-{cost.lower()}",
                pareto.draw(cloud, chosen, names, cost_name=cost, cost_unit=unit, id=f"pareto-{cost.lower()}"),
                [
                    (int(cloud.ids[i]), names[int(i)], float(cloud.error[i]), float(cloud.cost[i]))
                    for i in chosen.front_dots
                ],
                len(chosen.front),
                len(chosen.others),
                chosen.others_in_all,
            )
        )
    return pictures, on_front


router.add_route("/", home, methods=["GET"], include_in_schema=False)
router.add_route("/boards/{env_id}", newest_rules, methods=["GET"], include_in_schema=False)
router.add_route("/boards/{env_id}/{rules_version}", board, methods=["GET"], include_in_schema=False)
