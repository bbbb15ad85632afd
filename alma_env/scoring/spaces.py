"""The action space of an anytime learner: predictors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


_SEEDS = 2**63


def _same(value: object, new: object) -> bool:
    """Return whether an attribute equals that of a new classifier; the modes and devices of a module may differ."""
    if isinstance(new, nn.Parameter):
        return (
            type(value) is nn.Parameter
            and not vars(value)
            and not value._backward_hooks
            and value.dtype == new.dtype
            and torch.equal(value.detach().cpu(), new.detach())
        )
    if type(value) is not type(new):
        return False
    if isinstance(new, dict):
        assert isinstance(value, dict)
        return value.keys() == new.keys() and all(_same(value[key], part) for key, part in new.items())
    if isinstance(new, tuple):
        assert isinstance(value, tuple)
        return len(value) == len(new) and all(map(_same, value, new))
    return isinstance(new, bool) or value == new


class UntrainedPredictor(nn.Module):
    """A linear classifier with random weights from a seed; ``PredictorSpace.sample`` returns it.

    Args:
        input_shape: shape of one raw input.
        classes: number of logits C.
        seed: seed of the weights, a plain int of 0 to 2**63 − 1. The environment draws the weights again to recognize a
            predictor that has not been trained.
        per_token: return logits (n, T, C), equal for all tokens, as for text.

    Raises:
        TypeError: the seed is not a plain int, which could hold trained numbers.
        ValueError: the seed is out of range.
    """

    def __init__(self, input_shape: Sequence[int], classes: int, seed: int, per_token: bool = False) -> None:
        super().__init__()
        if type(seed) is not int:
            raise TypeError(f"seed={seed!r}: must be a plain int; draw one, or convert it with int()")
        if not 0 <= seed < _SEEDS:
            raise ValueError(f"seed={seed}: must be from 0 to 2**63 - 1; draw another")
        self.per_token = bool(per_token)
        self.input_shape = tuple(int(side) for side in input_shape)
        self.classes = int(classes)
        self.seed = seed
        self.weight = nn.Parameter(self._initial_weight())

    def _initial_weight(self) -> Tensor:
        inputs = 1 if self.per_token else int(np.prod(self.input_shape))
        weight = np.random.default_rng(self.seed).standard_normal((self.classes, inputs))
        return torch.from_numpy(weight / np.sqrt(inputs)).float()

    def forward(self, x: Tensor) -> Tensor:
        """Map raw inputs (n, ...) to logits (n, C), float32; per token, map (n, T) to (n, T, C)."""
        if self.per_token:
            return self.weight[:, 0].expand(*x.shape, self.classes)
        return nn.functional.linear(x.flatten(1).float(), self.weight)

    def __eq__(self, other: object) -> bool:
        """Return whether shape, seed and weights are equal: the samples of a space are compared by value."""
        return (
            type(other) is type(self)
            and (self.input_shape, self.classes, self.seed, self.per_token)
            == (other.input_shape, other.classes, other.seed, other.per_token)
            and torch.equal(self.weight.detach().cpu(), other.weight.detach().cpu())
        )

    # The hash of the object, as for tensors. PyTorch stores modules in sets, where two samples must stay two elements,
    # and training changes the value.
    __hash__ = nn.Module.__hash__

    def is_pristine(self) -> bool:
        """Return whether this is still exactly the classifier of the seed.

        A module can hold numbers in hooks, in further attributes and in attributes that replace methods. The attributes
        are therefore compared with those of a new classifier.
        """
        if type(self) is not UntrainedPredictor:
            return False
        own = vars(self)
        try:
            new = UntrainedPredictor(own["input_shape"], own["classes"], own["seed"], own["per_token"])
        except (KeyError, TypeError, ValueError):
            return False
        return own.keys() == vars(new).keys() and all(_same(own[name], value) for name, value in vars(new).items())


class PredictorSpace(gym.Space["nn.Module | None"]):
    """All predictors: any ``torch.nn.Module``, or ``None`` to keep the deployed predictor.

    Membership does not run the module. The environment checks its logits when it is deployed.

    Args:
        input_shape: shape of one raw input, for example (3, 32, 32).
        classes: number of logits C that a predictor must return for each input.
        seed: seed of ``sample``.
        per_token: the logits are (n, T, C), as for text.

    Example:
        >>> space = PredictorSpace((1, 8, 8), 10, seed=0)
        >>> space.sample()(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 10])
        >>> None in space, nn.Flatten() in space, 3 in space
        (True, True, False)
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        seed: int | np.random.Generator | None = None,
        *,
        per_token: bool = False,
    ) -> None:
        self.per_token = per_token
        self.input_shape = tuple(int(side) for side in input_shape)
        self.classes = int(classes)
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: a module is not an array."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> UntrainedPredictor:
        """Draw an untrained linear predictor; ``mask`` and ``probability`` must be None."""
        if mask is not None or probability is not None:
            raise ValueError(
                f"mask={mask!r}, probability={probability!r}: must be None, a PredictorSpace is not finite; "
                "call sample() without them"
            )
        return UntrainedPredictor(self.input_shape, self.classes, int(self.np_random.integers(2**31)), self.per_token)

    def contains(self, x: Any) -> bool:
        """Return whether x is a module or None."""
        return x is None or isinstance(x, nn.Module)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PredictorSpace) and (self.input_shape, self.classes, self.per_token) == (
            other.input_shape,
            other.classes,
            other.per_token,
        )

    def __repr__(self) -> str:
        per_token = ", per_token=True" if self.per_token else ""
        return f"PredictorSpace(input_shape={self.input_shape}, classes={self.classes}{per_token})"
