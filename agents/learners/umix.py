"""UMix, the uniform mixture: N networks trained jointly as one model (ALMA paper, section 4).

answer    g(x) = (1/N) Σ_j f(x; θ_j), the mean (or the sum) of logits
stage k:  minimise CE(g(x), y) over T: one optimizer, one data order, one best epoch on V;  θ_j from stage k − 1
predict:  argmax g(x)
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.learners.anytime import Report
from agents.learners.ens import initialise_members
from agents.learners.network_learner import NetworkLearner
from agents.networks.mlp_vgg import Predictor
from agents.networks.stacked import Joint, Reduce, stack
from agents.networks.uniform_mixture import UniformMixture
from agents.training.members import choose_together
from agents.training.stage import Examples


@dataclass(eq=False, kw_only=True)
class UMix(NetworkLearner[Predictor]):
    """A learner of one model made of N networks; it cannot grow.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        settings: settings of a stage.
        seed: run seed; member 0 has the initial weights of the single model, and the data order is the single model's.
        members: N, at least 1.
        reduce: ``mean`` of logits, as in the paper, or ``sum``, as in the authors' released code. For fixed weights
            both give the same predictions. With SGD, the steps of the sum are N times larger.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
        together: compute the members together (True) or one after another (False); None chooses the faster.
        engine: how to compute a stage. ``compiled`` always computes the members together, ``native`` never.
        device: where to train.
        on_epoch: called after every epoch, for progress displays.
    """

    members: int = 5
    reduce: Reduce = "mean"
    together: bool | None = None

    def initialise(self, stage: int) -> Predictor:
        """Return a mixture of untrained members."""
        members = initialise_members(self.build, self.seed, self.members, stage, self.device)
        mixture = UniformMixture([member.body for member in members], self.reduce)
        return Predictor(members[0].normalize, mixture).eval()

    def optimise(self, predictor: Predictor, train: Examples, valid: Examples) -> Report:
        """Train the members jointly."""
        members = list(mixture_of(predictor).members)
        together = self.engine == "compiled" or choose_together(self.together, members, self.settings)
        if self.engine == "native" or not together:
            return super().optimise(predictor, train, valid)
        stacked = stack(members)
        report = super().optimise(Predictor(predictor.normalize, Joint(stacked, self.reduce)), train, valid)
        stacked.copy_to(members)
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Raise ValueError: a uniform mixture has a fixed number of members."""
        raise ValueError(
            "grow with agent 'umix': a uniform mixture has a fixed number of members; use growth='never', or an "
            "agent that grows: gens, gmoe, ff"
        )


def mixture_of(predictor: Predictor) -> UniformMixture:
    """Return the body of a predictor of `UMix`."""
    assert isinstance(predictor.body, UniformMixture)
    return predictor.body
