"""The learners of the ALMA paper and the policies that decide when they wait, replay, grow and train.

>>> import alma_env, agents
>>> env = alma_env.make("Digits-ALMA-v0")
>>> agent = agents.make("sm", env, width=8, wait=10, epochs=2)
>>> ledger = agents.run(env, agent, seed=0)
>>> len(ledger), ledger[0].parameters, ledger[9].comp
(21, 682, 0)
"""

from agents.anytime import AnytimeAgent, Learner
from agents.catalogue import make
from agents.experiments.spec import RunSpec
from agents.experiments.sweep import SweepReport, sweep
from agents.frame import load_runs
from agents.methods import METHODS, TEXT_METHODS
from agents.policies import (
    BudgetPaced,
    Decision,
    Doubling,
    FixedWait,
    Policy,
    Progress,
    RandomWait,
    ValidationTriggered,
    fixed_wait,
)
from agents.recipes import RECIPES, Recipe
from agents.run_folder import RunMismatchError
from agents.runs import run
from agents.single_model import SingleModel
from agents.stage import Examples, StageReport, StageSettings
from agents.waiting.learned import LearnedPolicy

__all__ = [
    "METHODS",
    "RECIPES",
    "TEXT_METHODS",
    "AnytimeAgent",
    "BudgetPaced",
    "Decision",
    "Doubling",
    "Examples",
    "FixedWait",
    "LearnedPolicy",
    "Learner",
    "Policy",
    "Progress",
    "RandomWait",
    "Recipe",
    "RunMismatchError",
    "RunSpec",
    "SingleModel",
    "StageReport",
    "StageSettings",
    "SweepReport",
    "ValidationTriggered",
    "fixed_wait",
    "load_runs",
    "make",
    "run",
    "sweep",
]
