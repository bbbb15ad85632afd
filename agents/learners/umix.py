"""UMix, the uniform mixture: N networks trained jointly as one model (ALMA paper, section 4).

answer    g(x) = (1/N) Σ_j f(x; θ_j), the mean (or the sum) of logits
stage k:  minimise CE(g(x), y) over T: one optimizer, one data order, one best epoch on V;  θ_j from stage k − 1
predict:  argmax g(x)
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.learners.ens import initialise_members
from agents.learners.network_learner import NetworkLearner
from agents.networks.mlp_vgg import Predictor
from agents.networks.uniform_mixture import Reduce, UniformMixture


@dataclass(eq=False, kw_only=True)
class UMix(NetworkLearner[Predictor]):
    """A learner of one model made of N networks; it cannot grow.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        trainer: settings, random numbers, device and engine; member 0 has the initial weights of the single model, and
            the data order is the single model's.
        members: N, at least 1.
        reduce: ``mean`` of logits, as in the paper, or ``sum``, as in the authors' released code. For fixed weights
            both give the same predictions. With SGD, the steps of the sum are N times larger.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
    """

    cannot_grow = "'umix': a uniform mixture has a fixed number of members", "an agent that grows, such as gens or gmoe"
    members: int = 5
    reduce: Reduce = "mean"

    def initialise(self, stage: int) -> Predictor:
        """Return a mixture of untrained members."""
        members = initialise_members(self.build, self.trainer, self.members, stage)
        mixture = UniformMixture([member.body for member in members], self.reduce)
        return Predictor(members[0].normalize, mixture).eval()
