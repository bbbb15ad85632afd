"""Ens, the ensemble: N single models on the same data, their probabilities averaged (ALMA paper, section 4).

stage k:  for each member j:  θ_j ← its weights of stage k − 1, or a random initialisation if k = 1 or `from_scratch`
                              train as the single model on T, in its own order;  θ_j = its best epoch on V
predict:  argmax (1/N) Σ_j softmax f(x; θ_j)
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.learners.network_learner import NetworkLearner
from agents.networks.mlp_vgg import Build, Predictor
from agents.training.stage import Examples
from agents.training.trainer import MembersReport, Trainer
from alma_env import Ensemble


@dataclass(eq=False, kw_only=True)
class Ens(NetworkLearner[Ensemble]):
    """A learner of independent members; it cannot grow.

    Args:
        build: creates one member's untrained predictor from a generator of its initial weights.
        trainer: settings, random numbers, device and engine; member 0 has the random numbers of the single model.
        members: N, at least 1.
        from_scratch: start every stage from new random initialisations; only meaningful with replay.
    """

    cannot_grow = "'ens': an ensemble has a fixed number of members", "the agent 'gens'"
    members: int = 5

    def initialise(self, stage: int) -> Ensemble:
        """Return untrained members."""
        members = initialise_members(self.build, self.trainer, self.members, stage)
        return Ensemble([member.body for member in members], members[0].normalize).eval()

    def optimise(self, predictor: Ensemble, train: Examples, valid: Examples) -> MembersReport:
        """Train every member and keep its own best epoch."""
        return self.trainer.train_members(predictor.prepare, list(predictor.members), train, valid, self.stage + 1)


def initialise_members(build: Build, trainer: Trainer, members: int, stage: int) -> list[Predictor]:
    """Return untrained predictors, at least one; the first is the single model's of that stage."""
    if members < 1:
        raise ValueError(f"members={members}: must be at least 1 member; use members=1, or leave it out")
    generators = [trainer.generator("init", member=member, stage=stage) for member in range(members)]
    return [build(weights).to(trainer.device).eval() for weights in generators]
