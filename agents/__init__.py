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
from agents.methods import METHODS, TEXT_METHODS
from agents.policies import Decision, FixedWait, Policy, Progress, fixed_wait
from agents.recipes import RECIPES, Recipe
from agents.runs import RunMismatchError, run
from agents.single_model import SingleModel
from agents.stage import Examples, StageReport, StageSettings

__all__ = [
    "METHODS",
    "RECIPES",
    "TEXT_METHODS",
    "AnytimeAgent",
    "Decision",
    "Examples",
    "FixedWait",
    "Learner",
    "Policy",
    "Progress",
    "Recipe",
    "RunMismatchError",
    "SingleModel",
    "StageReport",
    "StageSettings",
    "fixed_wait",
    "make",
    "run",
]
