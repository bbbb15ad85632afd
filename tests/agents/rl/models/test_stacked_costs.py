"""Costs of growth steps, also of more steps than any recorded run took."""

from __future__ import annotations

import dataclasses

import numpy as np

from agents.rl.models.stacked_costs import StackedCosts
from agents.rl.models.training_fit import fit_trainings

from ..synthetic import waits


def test_growth_beyond_the_recorded_steps_costs_what_a_recorded_step_costs():
    fixed = fit_trainings(waits(noise=0.1, seeds=(0, 1)))
    flops = np.array([[10.0, 4.0], [12.0, 3.0], [30.0, 8.0]])
    growing = dataclasses.replace(fixed, parameters=np.array([100.0, 140.0, 220.0]), flops=flops)
    costs = StackedCosts([fixed, growing])
    learner, grown = np.array([1, 1, 1, 0]), np.array([2, 3, 5, 5])
    np.testing.assert_allclose(costs.parameters(learner, grown), [220, 280, 400, costs.parameters(0)])
    np.testing.assert_allclose(costs.flops(learner, np.full(4, 2), grown)[:3], [46, 60, 88])
    np.testing.assert_allclose(costs.flops(learner, np.full(4, 2), grown)[3:], costs.flops([0], [2], [0]))
