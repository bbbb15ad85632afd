"""Several networks of one architecture side by side, for devices whose operations cost more to start than to compute.

The members share operations, but no numbers. The results equal those of one network after another, to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state


class Stacked(nn.Module):
    """Networks side by side; the first dimension of each parameter and buffer is that of the members.

    Args:
        bodies: networks of one architecture, which map inputs (n, ...) to logits (n, classes).
    """

    def __init__(self, bodies: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(bodies)
        parameters, buffers = stack_module_state(list(bodies))
        for name, tensor in parameters.items():
            self.register_parameter(_flat(name), nn.Parameter(tensor.detach()))
        for name, tensor in buffers.items():
            self.register_buffer(_flat(name), tensor)
        self._names = {_flat(name): name for name in (*parameters, *buffers)}  # the names in one network
        self._architecture = [copy.deepcopy(bodies[0]).to("meta")]  # in a list, so that it is not a part of this module

    def forward(self, x: Tensor, *, separate: bool = False) -> Tensor:
        """Return the logits (members, n, classes) of inputs (n, ...), or of (members, n, ...) if `separate`."""
        (architecture,) = self._architecture
        architecture.train(self.training)
        state = {self._names[name]: tensor for name, tensor in (*self.named_parameters(), *self.named_buffers())}
        call = partial(functional_call, architecture)
        logits: Tensor = torch.vmap(call, in_dims=(0, 0 if separate else None))(state, x)
        return logits

    def training_loss(self, x: Tensor, y: Tensor, balance: float) -> Tensor:
        """Return the sum of the members' mean cross-entropies on one batch per member, y (members, n).

        The optimizers are elementwise, so the gradient of the sum trains each member on its own loss.
        """
        return self._cross_entropy(self(x, separate=True), y).mean(1).sum()

    def validation_score(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return each member's summed cross-entropy and number of wrong answers (members,) on one batch, y (n,)."""
        logits, y = self(x), y.expand(self.members, -1)
        return self._cross_entropy(logits, y).sum(1), (logits.argmax(-1) != y).sum(-1)

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(logits.transpose(1, 2), y, reduction="none")  # (members, n)

    def copy_to(self, bodies: Sequence[nn.Module]) -> None:
        """Copy the members' parameters and buffers into one network each."""
        state = {self._names[name]: tensor for name, tensor in self.state_dict().items()}
        for member, body in enumerate(bodies):
            body.load_state_dict({name: tensor[member] for name, tensor in state.items()})


def _flat(name: str) -> str:
    """Return a name without dots, which the name of a parameter cannot have."""
    return name.replace(".", "/")
