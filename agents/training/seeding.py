"""Independent random generators, all derived from one run seed.

Each role (initialisation, data order, augmentation, …) of each ensemble member at each stage has a generator of its
own, so that adding a member, or a draw in one role, changes nothing in another. Member 0 of any ensemble draws as the
single model does.
"""

from __future__ import annotations

from typing import Literal, TypedDict

import numpy as np
import torch

Role = Literal["init", "order", "augment", "grow", "noise"]

# Fixed numbers: a role's draws must not change when another role is added.
_ROLES: dict[Role, int] = {"init": 1, "order": 2, "augment": 3, "grow": 4, "noise": 5}


def generator(seed: int, role: Role, *, member: int = 0, stage: int = 1) -> torch.Generator:
    """A CPU generator for one role of one member at one stage (stages count from 1).

    Raises:
        ValueError: the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed={seed}: a run seed must be 0 or more")
    sequence = np.random.SeedSequence([seed, _ROLES[role], member, stage])
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))


class StageGenerators(TypedDict):
    """What `train_stage` draws from."""

    order: torch.Generator
    augment: torch.Generator
    noise: torch.Generator


def stage_generators(seed: int, stage: int, member: int = 0) -> StageGenerators:
    """The generators with which one network is trained at a stage; by default as the single model is."""
    return {
        "order": generator(seed, "order", member=member, stage=stage),
        "augment": generator(seed, "augment", member=member, stage=stage),
        "noise": generator(seed, "noise", member=member, stage=stage),
    }
