"""The learners of the ALMA paper and the policies that decide when they wait, replay, grow and train.

>>> import alma_env, agents
>>> env = alma_env.make("Digits-ALMA-v0")
>>> agent = agents.make("sm", env, width=8, wait=10, epochs=2)
>>> ledger = agents.run(env, agent, seed=0)
>>> len(ledger), ledger[0].parameters, ledger[9].comp
(21, 682, 0)
"""

from typing import TYPE_CHECKING

from alma_env import lazy_names

if TYPE_CHECKING:  # the public names; each is imported on first use
    from agents.analysis.dataframe import load_runs as load_runs
    from agents.catalogue.build import make as make
    from agents.catalogue.methods import METHODS as METHODS
    from agents.catalogue.methods import TEXT_METHODS as TEXT_METHODS
    from agents.catalogue.recipes import RECIPES as RECIPES
    from agents.catalogue.recipes import Recipe as Recipe
    from agents.catalogue.spec import RunSpec as RunSpec
    from agents.learners.anytime import AnytimeAgent as AnytimeAgent
    from agents.learners.anytime import Learner as Learner
    from agents.learners.scikit import ScikitLearner as ScikitLearner
    from agents.learners.sm import SingleModel as SingleModel
    from agents.policies.exploring import Exploring as Exploring
    from agents.policies.learned.policy import LearnedPolicy as LearnedPolicy
    from agents.policies.learned.schedule import LearnedSchedule as LearnedSchedule
    from agents.policies.progress import Decision as Decision
    from agents.policies.progress import Policy as Policy
    from agents.policies.progress import Progress as Progress
    from agents.policies.records import policy_record as policy_record
    from agents.policies.waiting import BudgetPaced as BudgetPaced
    from agents.policies.waiting import Doubling as Doubling
    from agents.policies.waiting import FixedWait as FixedWait
    from agents.policies.waiting import Geometric as Geometric
    from agents.policies.waiting import RandomWait as RandomWait
    from agents.policies.waiting import ValidationTriggered as ValidationTriggered
    from agents.policies.waiting import fixed_wait as fixed_wait
    from agents.runs.run import run as run
    from agents.runs.run_folder import RunMismatchError as RunMismatchError
    from agents.sweeps.sweep import SweepReport as SweepReport
    from agents.sweeps.sweep import sweep as sweep
    from agents.training.settings import StageSettings as StageSettings
    from agents.training.stage import CannotGrowError as CannotGrowError
    from agents.training.stage import Examples as Examples
    from agents.training.stage import StageReport as StageReport
    from agents.training.trainer import Trainer as Trainer

__getattr__, __dir__, __all__ = lazy_names.attach(
    __name__,
    {
        "finished": "runs.load",
        "experiments": "sweeps",
        "experiments.grid": "sweeps.grid",
        "experiments.sweep": "sweeps.sweep",
        "policies.features": "policies.learned.features",
        "policies.learned_schedule": "policies.learned.schedule",
        "policies.priced_features": "policies.learned.priced_features",
        "waiting": "rl",
        "waiting.environment": "rl.environments.wait_env",
        "waiting.sb3": "rl.learning.sb3",
        "waiting.shipped": "rl.models.learning_curve",
        "waiting.surrogate": "rl.surrogates.surrogate",
        "bidder": "arena.bidder",
    },
)
