"""Estimators of scikit-learn as learners: forests, single trees, and k nearest neighbours (extra ``scikit``).

stage k:  fit a new estimator to T;  deploy it as a PyTorch module, so that the environment can score and measure it
predict:  as the estimator

The size and the FLOPs of an answer are those of the module, see `agents.networks.forest` and
`agents.networks.nearest_neighbours`. The meter cannot count the work of scikit-learn, so a stage declares it by this
rule: in a tree, each decision compares its candidate features (``max_features``), and each comparison takes one
multiply-add, 2 FLOPs, for each training example at the decision; a tree without decisions takes 2 for each example.
Storing neighbours takes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.forest import Forest, forest_of
from agents.networks.mlp_vgg import Normalize, Predictor
from agents.networks.nearest_neighbours import NearestNeighbours
from agents.training.stage import CannotGrowError, Examples, StageReport
from alma_env.errors import MissingPackageError, how_to_install
from alma_env.integers import require_integer
from alma_env.metering import meter

if TYPE_CHECKING:
    from alma_env import DataSet

_BODIES: dict[str, Callable[..., nn.Module]] = {"Forest": Forest, "NearestNeighbours": NearestNeighbours}


class Uninformed(nn.Module):
    """Answers with the same logit for every class, before the first stage."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (n, classes) of 0."""
        return inputs.new_zeros(len(inputs), self.classes)


class ScikitLearner:
    """A learner that fits an estimator of scikit-learn to the data of each stage; it cannot grow.

    Fit it with replay: a stage forgets the data that it does not get.

    Args:
        estimator: an unfitted ``RandomForestClassifier``, ``ExtraTreesClassifier``, ``DecisionTreeClassifier`` or
            ``KNeighborsClassifier`` (Euclidean, uniform weights). Every stage fits a copy.
        data: the data set of the environment, ``env.data``, for shapes and normalisation.
        seed: seed of the estimator's random numbers, where it has ``random_state=None``.

    Raises:
        MissingPackageError: scikit-learn is not installed.
        TypeError: the estimator is of another class, the data are text, or the seed is not an integer.
        ValueError: a setting of the neighbours is not supported, or the seed is negative.

    >>> import agents, alma_env
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> env = alma_env.make("Digits-ALMA-v0", ticks=4)
    >>> learner = ScikitLearner(RandomForestClassifier(10), env.data, seed=0)
    >>> policy = agents.FixedWait(wait=2, replay=True)
    >>> agent = agents.AnytimeAgent(learner, policy, env.ticks, learner.config)
    >>> agents.run(env, agent, seed=0)[-1].error < 0.2
    True
    """

    def __init__(self, estimator: Any, data: DataSet, *, seed: int = 0) -> None:
        _require_supported(estimator)
        if not hasattr(data, "scale"):
            raise TypeError(f"data={data!r}: must be a DataSet of images or arrays; text has no features to split")
        seed = require_integer(seed, "seed")
        if seed < 0:
            raise ValueError(f"seed={seed}: must be at least 0; use seed=0")
        self.estimator, self.seed, self.stage = estimator, seed, 0
        self.features, self.classes = math.prod(data.input_shape), data.classes
        self._normalize = Normalize(data.scale, data.mean, data.std)
        self.predictor = Predictor(self._normalize, Uninformed(data.classes)).eval()

    @property
    def config(self) -> dict[str, Any]:
        """The record of the learner for ``AnytimeAgent``: the class, its settings and the seed."""
        settings = {name: _plain(value) for name, value in self.estimator.get_params(deep=False).items()}
        return {"id": type(self.estimator).__name__, "estimator": settings, "seed": self.seed}

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Fit a copy of the estimator; declare its FLOPs to the running meter."""
        from sklearn.base import clone

        self.stage += 1
        fitted = clone(self.estimator)
        if fitted.get_params().get("random_state", 0) is None:
            numbers = np.random.SeedSequence([self.seed, self.stage]).generate_state(1)
            fitted.set_params(random_state=int(numbers[0]))
        with torch.no_grad():
            x = self._normalize(train.x).flatten(1)
            fitted.fit(x.numpy(), train.y.numpy())
            self.predictor = Predictor(self._normalize, self._module_of(fitted, x, train.y)).eval()
            with meter.phase("validation"):
                logits = self.predictor(valid.x)
        loss = F.cross_entropy(logits, valid.y).item()
        error = (logits.argmax(1) != valid.y).float().mean().item()
        return StageReport((loss,), (error,), best_epoch=1)

    def _module_of(self, fitted: Any, x: Tensor, y: Tensor) -> nn.Module:
        if not _is_forest(fitted):
            return NearestNeighbours(x, y.clone(), int(fitted.n_neighbors), self.classes)
        trees = getattr(fitted, "estimators_", [fitted])
        flops = sum(_fitting_flops(tree, len(y)) for tree in trees)
        if (running := meter.running()) is not None:
            running.declare(flops, reason=f"{type(fitted).__name__} of scikit-learn, see agents.learners.scikit")
        return forest_of([tree.tree_ for tree in trees], np.asarray(fitted.classes_, np.int64), self.classes)

    def grow(self, train: Examples, valid: Examples) -> None:
        """Raise CannotGrowError: an estimator has a fixed size, or the size that the data give it."""
        raise CannotGrowError(
            "grow with an estimator of scikit-learn: it cannot grow; use grow=0 (a schedule: growth='never')"
        )

    def restart(self) -> None:
        """Do nothing: every stage fits a new copy."""

    def state_dict(self) -> dict[str, Any]:
        """Return the number of stages and the deployed module."""
        body = self.predictor.body
        numbers = {name: getattr(body, name) for name in ("depth", "k", "classes") if hasattr(body, name)}
        return {"stage": self.stage, "kind": type(body).__name__, "numbers": numbers, "tensors": body.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.stage = state["stage"]
        body: nn.Module = Uninformed(self.classes)
        if self.stage:
            body = _BODIES[state["kind"]](**state["tensors"], **state["numbers"])
        self.predictor = Predictor(self._normalize, body).eval()


def _fitting_flops(tree: Any, examples: int) -> int:
    """Return the FLOPs of fitting one tree, by the rule of this module."""
    decisions = tree.tree_.children_left >= 0
    flops = 2 * int(tree.tree_.n_node_samples[decisions].sum()) * int(tree.max_features_)
    return flops or 2 * examples


def _is_forest(estimator: Any) -> bool:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    return isinstance(estimator, RandomForestClassifier | ExtraTreesClassifier | DecisionTreeClassifier)


def _require_supported(estimator: Any) -> None:
    try:
        from sklearn.neighbors import KNeighborsClassifier
    except ImportError as error:
        raise MissingPackageError(f"the package scikit-learn is missing; {how_to_install('scikit')}") from error
    if _is_forest(estimator):
        state = estimator.random_state
        if state is not None and not isinstance(state, Integral):
            raise TypeError(
                f"random_state={state!r}: must be a whole number or None, because the record of a run cannot hold its "
                "state; use random_state=0"
            )
        return
    if not isinstance(estimator, KNeighborsClassifier):
        raise TypeError(
            f"estimator={str(estimator)[:80]}: must be a RandomForestClassifier, ExtraTreesClassifier, "
            "DecisionTreeClassifier or KNeighborsClassifier; for others write a learner, and declare their FLOPs"
        )
    euclidean = estimator.metric == "euclidean" or (estimator.metric == "minkowski" and estimator.p == 2)
    if not euclidean or estimator.metric_params or estimator.weights != "uniform":
        given = {name: getattr(estimator, name) for name in ("metric", "p", "metric_params", "weights")}
        raise ValueError(
            f"{', '.join(f'{name}={value!r}' for name, value in given.items())}: the neighbours must be Euclidean with "
            "uniform weights; use metric='euclidean', metric_params=None, weights='uniform'"
        )


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
