"""Independent random generators, all derived from one run seed.

Each role (initialisation, data order, augmentation, …) of each ensemble member at each stage has its own generator.
Another member, or another random draw in one role, therefore changes no other random number. Member 0 of an ensemble
has the generators of the single model.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

Role = Literal["init", "order", "augment", "grow", "noise"]

# Fixed numbers: the random numbers of a role must not change when a role is added.
_ROLES: dict[Role, int] = {"init": 1, "order": 2, "augment": 3, "grow": 4, "noise": 5}


def generator(seed: int, role: Role, *, member: int = 0, stage: int = 1) -> torch.Generator:
    """Return the CPU generator of one role of one member at one stage; stages count from 1, seeds from 0."""
    if seed < 0:
        raise ValueError(f"seed={seed}: must be 0 or more; use seed=0")
    sequence = np.random.SeedSequence([seed, _ROLES[role], member, stage])
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)))


class StageGenerators(NamedTuple):
    """The generators of one network for one stage.

    `order` and `augment` give the data order and the augmentation. `noise` seeds what the network draws while it trains
    (dropout, routing); None leaves that to the global generator.
    """

    order: torch.Generator
    augment: torch.Generator
    noise: torch.Generator | None = None


def stage_generators(seed: int, stage: int, members: int = 1) -> list[StageGenerators]:
    """Return the generators of each member at one stage; the first member is the single model."""
    return [
        StageGenerators(
            order=generator(seed, "order", member=member, stage=stage),
            augment=generator(seed, "augment", member=member, stage=stage),
            noise=generator(seed, "noise", member=member, stage=stage),
        )
        for member in range(members)
    ]
