"""Training where the meter does not count."""

from __future__ import annotations

import textwrap

import pytest

from leaderboard.verification import audit

from ..threads import parties_in_threads
from .gallery import case, codes, printed

# The first way solves the problem at once. Where nothing is refused, the others go on from there.
TRAINS_ELSEWHERE = {
    "in NumPy": """
        x, y = observation["train"]["x"].reshape(-1, 64) / 16, observation["train"]["y"]
        weights = np.linalg.lstsq(x, np.eye(10)[y], rcond=None)[0]
        with torch.no_grad():
            self.predictor.layer.weight.copy_(torch.from_numpy(weights.T.astype("float32")))
        """,
    "in another thread": """
        thread = threading.Thread(target=super().observe, args=(observation,))
        thread.start()
        thread.join()
        """,
    "with the dispatch mode disabled": """
        with _disable_current_modes():
            super().observe(observation)
        """,
}
AGENT = """
class Elsewhere(Learner):
    def __init__(self, env):
        super().__init__(env)
        self.step, env.step = env.step, self.step_or_wait
        self.initial = {name: value.clone() for name, value in self.predictor.state_dict().items()}

    def observe(self, observation):
        if BEGINS_AGAIN:
            self.predictor.load_state_dict(self.initial)
        ways = self.way0, self.way1, self.way2, super().observe
        return ways[self.env.tick](observation)

    def step_or_wait(self, predictor):
        try:
            return self.step(predictor)
        except Exception as error:
            print(f"tick {self.env.tick}: {type(error).__name__}", flush=True)
            return self.step(None)
"""


def source(begins_again: bool) -> str:
    """Return a learner that trains in one of the ways at each tick, and waits where its predictor is refused.

    The last way is honest.
    """
    ways = ""
    for number, body in enumerate(TRAINS_ELSEWHERE.values()):
        indented = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
        ways += f"\n    def way{number}(self, observation):\n{indented}\n        return self.predictor\n"
    imports = "import threading\nimport numpy as np\nfrom torch.utils._python_dispatch import _disable_current_modes\n"
    return (
        f"{imports}BEGINS_AGAIN = {begins_again}\n{AGENT}"
        + ways
        + "\ndef make_agent(env):\n    return Elsewhere(env)\n"
    )


@pytest.fixture(scope="module")
def refused(shared_run):
    return shared_run(source(begins_again=True), len(TRAINS_ELSEWHERE) + 1, parties_in_threads())


@pytest.fixture(scope="module")
def flagged(shared_run):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("alma_env.env.require_metered", lambda *arguments: None)
        return shared_run(source(begins_again=False), len(TRAINS_ELSEWHERE), parties_in_threads())


@pytest.mark.parametrize(
    "number",
    [
        case(
            f"trains {where}",
            "refused; with the refusal patched away, findings `free-training` and `known-before`",
            number,
        )
        for number, where in enumerate(TRAINS_ELSEWHERE)
    ],
)
def test_training_outside_the_meter_is_refused_and_flagged_if_the_refusal_is_patched(refused, flagged, number):
    assert printed(refused, f"tick {number}") == "UnmeteredTrainingError"
    assert refused.ledger[number + 1].digest == refused.ledger[0].digest != refused.ledger[-1].digest

    assert flagged.failure is None
    assert flagged.ledger.score().comp == 0
    assert codes(flagged) == {"free-training", "known-before"}
    for check in (audit._free_training, audit._known_before):
        assert [text for _, text in check(flagged) if text.startswith(f"tick {number + 1}: ")]
