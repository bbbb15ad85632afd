"""Generators of different roles are independent, and equal for equal roles."""

from __future__ import annotations

import itertools

import pytest
import torch

from agents.training.seeding import generator


def draw(*args, **kwargs) -> tuple[float, ...]:
    return tuple(torch.rand(4, generator=generator(*args, **kwargs)).tolist())


def test_every_role_member_stage_and_seed_has_its_own_random_numbers():
    cases = itertools.product((0, 1), ("init", "order", "augment", "grow", "noise"), (0, 1), (1, 2))
    drawn = [draw(seed, role, member=member, stage=stage) for seed, role, member, stage in cases]
    assert len(set(drawn)) == len(drawn)
    assert draw(0, "init") == drawn[0]


def test_a_negative_seed_raises():
    with pytest.raises(ValueError, match="seed=-1"):
        generator(-1, "init")
