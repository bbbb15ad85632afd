"""Every response of the API conforms to the OpenAPI document, and no request causes a server error.

Schemathesis generates valid and invalid requests from the document, with a maintainer's token and without a token. This
command sends many more requests to a running server, with boundary values of all parameters and with unknown methods:

    schemathesis run http://127.0.0.1:8000/api/v1/openapi.json --header "Authorization: Bearer alma_..."
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from sqlalchemy import update

from leaderboard.accounts.tokens import hash_of
from leaderboard.board import queue
from leaderboard.board.submissions import submit
from leaderboard.database.engine import connect, writing
from leaderboard.database.tables import Token
from leaderboard.verification.result import Finding
from leaderboard.web.api.schemas import PLAIN_TEXT
from leaderboard.web.app import create_app

from ..conftest import package_of, verification_of
from ..web_client import SETTINGS, Person, person

bounded = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


# Archives: random bytes, or a valid archive.
packages = strategies.integers(0, 3).map(lambda number: package_of(name=f"sent {number}").to_zip())
schemathesis.openapi.media_type("application/zip", strategies.one_of(strategies.binary(max_size=200), packages))

# Names that the rule accepts. api/test_accounts.py has names that it refuses.
characters = strategies.characters(exclude_categories=("C", "Z"))
schemathesis.openapi.format(PLAIN_TEXT, strategies.text(characters, min_size=1, max_size=80))

# The document is needed before the tests, so the application gets its database later.
app = create_app(connect("sqlite:///nowhere.db"), SETTINGS)
api = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
api.config.generation.update(with_security_parameters=False)  # the tests set the tokens
OPERATIONS = [f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods]


@pytest.fixture(scope="module", autouse=True)
def mia(sqlite_board: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """A maintainer of a board with a submission in every state."""
    file = tmp_path_factory.mktemp("properties") / "board.db"
    shutil.copy(sqlite_board, file)
    engine = app.state.engine = connect(f"sqlite:///{file}")
    mia = person(engine, "Mia", "maintainer")
    with writing(engine) as session:  # an id that no generated request revokes
        session.execute(update(Token).where(Token.hash == hash_of(mia.token)).values(id=1_234_567_891))
    for name, findings in (("verified", []), ("flagged", ["suspicious"]), ("rejected", ["fatal"])):
        submit(engine, package_of(name=name), "Mia")
        found = [Finding(severity, "odd", "odd") for severity in findings]
        queue.finish(engine, queue.claim(engine, "w"), verification_of((0, 1, 2), *found, comp=10**20))
    submit(engine, package_of(name="failed"), "Mia")
    queue.fail(engine, queue.claim(engine, "w"), "the disk was full", retry=False)
    for name in ("running", "queued"):
        submit(engine, package_of(name=name), "Mia")
    queue.claim(engine, "w")
    yield mia
    engine.dispose()


def check(label: str, examples: int, headers: dict[str, str] | None = None) -> None:
    """Send valid and invalid requests of an operation, and check that the responses conform to the document."""
    method, path = label.split()
    operation = api[path][method]
    archive = label == "POST /api/v1/submissions"  # the document cannot describe a valid archive
    excluded = [positive_data_acceptance] if archive else []
    for mode in GenerationMode:
        if mode == GenerationMode.NEGATIVE and (archive or not (list(operation.iter_parameters()) or operation.body)):
            continue  # it has no value that could be invalid

        @given(case=operation.as_strategy(mode))
        @settings(bounded, max_examples=examples)
        def one(case: schemathesis.Case) -> None:
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        one()


@pytest.mark.parametrize("label", OPERATIONS)
def test_responses_to_a_maintainer_conform_to_the_document(label, mia):
    check(label, 8, mia.headers)


@pytest.mark.parametrize("label", OPERATIONS)
def test_responses_without_a_token_conform_to_the_document(label):
    check(label, 3)
