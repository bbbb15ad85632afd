"""SM, the single model: one network, fine-tuned at every stage (ALMA paper, section 4; Algorithm 1).

stage k:  θ ← θ_{k−1}, or a random initialisation if k = 1 or ``from_scratch``
          minimise the mean cross-entropy over T for E epochs;  θ_k = the best epoch on V
predict:  argmax f(x; θ_k)
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.learners.network_learner import NetworkLearner
from agents.networks.mlp_vgg import Predictor


@dataclass(eq=False, kw_only=True)
class SingleModel(NetworkLearner[Predictor]):
    """A learner that fine-tunes one network; it cannot grow.

    Args:
        build: creates the untrained predictor from a generator of its initial weights.
        trainer: settings, random numbers, device and engine.
        from_scratch: start every stage from a new random initialisation; only meaningful with replay.
    """

    cannot_grow = "'sm': a single model cannot grow", "an agent that grows, such as gens or gmoe"

    def initialise(self, stage: int) -> Predictor:
        """Return the untrained network of a stage."""
        return self.build(self.trainer.generator("init", stage=stage)).to(self.trainer.device).eval()
