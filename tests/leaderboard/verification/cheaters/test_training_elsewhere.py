"""Training where the meter does not count."""

from __future__ import annotations

import textwrap

import pytest

from .gallery import case, codes

TRAINS_ELSEWHERE = {
    "in another thread": """
        import threading

        class Elsewhere(Learner):
            def observe(self, observation):
                thread = threading.Thread(target=super().observe, args=(observation,))
                thread.start()
                thread.join()
                return self.predictor
        """,
    "in NumPy": """
        class Elsewhere(Learner):
            def observe(self, observation):
                x, y = observation["train"]["x"].reshape(-1, 64) / 16, observation["train"]["y"]
                weights = np.linalg.lstsq(x, np.eye(10)[y], rcond=None)[0]
                with torch.no_grad():
                    self.predictor.layer.weight.copy_(torch.from_numpy(weights.T.astype("float32")))
                return self.predictor
        """,
    "with the dispatch mode disabled": """
        from torch.utils._python_dispatch import _disable_current_modes

        class Elsewhere(Learner):
            def observe(self, observation):
                with _disable_current_modes():
                    return super().observe(observation)
        """,
}


@pytest.mark.parametrize(
    "source",
    [
        case(
            f"trains {where}",
            "refused; with the refusal patched away, findings `free-training` and `known-before`",
            source,
        )
        for where, source in TRAINS_ELSEWHERE.items()
    ],
)
def test_training_outside_the_meter_is_refused_and_flagged_if_the_refusal_is_patched(run, source):
    source = "import numpy as np\n" + textwrap.dedent(source)
    ending = "\ndef make_agent(env):\n    return Elsewhere(env)\n"
    refused = run(source + ending)
    assert "UnmeteredTrainingError" in refused.failure

    patch = "\nimport alma_env.env\nalma_env.env.require_metered = lambda *arguments: None\n"
    flagged = run(source + patch + ending)
    assert flagged.failure is None
    assert flagged.ledger.score().comp == 0
    assert codes(flagged) == {"free-training", "known-before"}
