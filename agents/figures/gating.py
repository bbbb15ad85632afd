"""How the gates of a mixture of experts divide the digits (first version of the ALMA paper, figures 5 and 8).

On the left is a t-SNE map of test examples, each drawn as its class. On the right is the tree of gates. A gate shows
the examples that reach it, in dark if they go right. A leaf shows the examples that its expert answers. All maps are
equal.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

import alma_env
from agents.analysis.seed_groups import SeedGroup
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.build import build
from agents.catalogue.data_facts import split_keywords
from agents.figures import style
from agents.figures.files import Drawing
from agents.learners.gmoe import GMoE
from agents.networks.gate_tree import leaf_paths
from agents.networks.mixture import MixtureNetwork, mixture_body
from agents.policies.waiting import FixedWait
from agents.runs.load import FinishedRun
from alma_env import AlmaEnv, DataSet
from alma_env.errors import MissingPackageError, how_to_install
from alma_env.registration import ARRAYS_ID, NAMESPACE

EXAMPLES = 800  # on the map
GATES = 7  # drawn gates, the oldest; later growth below a drawn gate counts as one leaf


@dataclass(frozen=True)
class _Node:
    """A gate or a leaf of the drawn tree, with the range of experts below it from the left."""

    first: int
    last: int  # inclusive
    depth: int  # gates above this node
    across: float  # place in the figure, 0 at the left and 1 at the right
    children: tuple[_Node, _Node] | None = None  # left and right child of a gate

    def walk(self) -> Iterator[_Node]:
        """Yield this node and all nodes below it."""
        yield self
        for child in self.children or ():
            yield from child.walk()


def draw(groups: Sequence[SeedGroup], title: str, layer: int = 1) -> Drawing:
    """Draw the tree of gates of one setting, from the run of its first seed; mixture layers count from 1.

    Raises:
        ValueError: the runs have several settings or a method without gates; or the run has no checkpoint, no gate, no
            such layer, or other data than this machine.
    """
    mixtures = [group for group in groups if group.method_id in ("gmoe", "moe")]
    if len(mixtures) != 1:
        found = "; ".join(group.name for group in mixtures) or "none"
        raise ValueError(
            f"gating of {len(mixtures)} settings with gates on {title} ({found}): it shows one setting; choose it, "
            "for example --where agent=gmoe width=16 wait=10"
        )
    (group,) = mixtures
    run = group.first
    data, shares, splits = _shares(run, layer)
    root = _tree(splits)
    classes = data.test_y[:EXAMPLES]
    places = _map(data)
    leaves = [node for node in root.walk() if node.children is None]
    depth = max(leaf.depth for leaf in leaves)
    wide, high = max(1.25 * len(leaves), 3.6), max(1.45 * (depth + 1) + 0.9, 4.8)
    figure = style.blank(4.6 + wide, high)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[4.6, wide])[0]
    _digits(left.subplots(), places, classes, data.classes)
    right.text(0.01, 0.985, textwrap.fill(_CAPTION, int(14 * wide)), fontsize="x-small", color=style.GREY, va="top")
    _draw_tree(right, root, places, shares, classes)
    style.title(figure, f"{title}, {group.name}, seed {run.seed}, mixture layer {layer}")
    rows = [
        {
            "example": number,
            "class": int(classes[number]),
            "x": float(places[number, 0]),
            "y": float(places[number, 1]),
            **{_name(leaf): float(_share(shares, leaf)[number]) for leaf in leaves},
        }
        for number in range(len(classes))
    ]
    notes = [f"seed {run.seed} of {len(group.runs)}: the map shows one run"] * (len(group.runs) > 1)
    if len(splits) > GATES:
        notes.append(f"the first {GATES} of {len(splits)} gates are drawn; later growth below them is one leaf")
    return Drawing(figure, rows, tuple(notes))


def _shares(run: FinishedRun, layer: int) -> tuple[DataSet, NDArray[np.float64], tuple[int, ...]]:
    """Return the data, each expert's share of the first test examples (n, leaves), and the splits of the tree."""
    file = run.folder / "checkpoint.pt"
    if not file.exists():
        raise ValueError(
            f"{file}: missing; the gates are in the checkpoint, which packed runs do not have; give the run "
            "folder, or run it again"
        )
    config = run.run_config
    env = _env(run)
    if env.data.digest != config.get("protocol.digest"):
        raise ValueError(
            f"{run.folder}: the run has data with digest {config.get('protocol.digest')}, this machine has "
            f"{env.data.digest}; draw it on a machine with the same data"
        )
    here = AgentConfig({**config.agent.record, "device": "cpu", "engine": "plain"})
    learner = build(here, env, policy=FixedWait()).learner
    assert isinstance(learner, GMoE)
    learner.load_state_dict(torch.load(file, map_location="cpu", weights_only=True)["agent"]["learner"])
    body = mixture_body(learner.predictor)
    assert isinstance(body, MixtureNetwork)
    assert isinstance(env.data, DataSet)
    if not 1 <= layer <= len(body.mixtures):
        raise ValueError(f"layer={layer}: the network has mixture layers 1 to {len(body.mixtures)}; choose one of them")
    mixture = body.mixtures[layer - 1]
    if not mixture.routing.tree:
        raise ValueError(
            f"{run.folder}: tree=False: one softmax divides the examples instead of a tree of gates; draw another run"
        )
    if not mixture.splits:
        raise ValueError(f"{run.folder}: it has one expert and no gate; draw a run with several trainings")
    seen: list[torch.Tensor] = []
    with torch.no_grad():
        hook = mixture.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        learner.predictor.eval()(torch.from_numpy(env.data.test_x[:EXAMPLES].copy()))
        hook.remove()
        shares: NDArray[np.float64] = mixture.leaf_probabilities(seen[0]).double().numpy()
    return env.data, shares, mixture.splits


def _env(run: FinishedRun) -> AlmaEnv:
    """Return an environment with the data of a run; ValueError if the run does not say where its own data are."""
    config = run.run_config
    if config.env.removeprefix(NAMESPACE) != ARRAYS_ID:
        split = config.get("protocol.data").partition("-")[2]
        return alma_env.make(config.env, ticks=config.ticks, **({"split": split} if split else {}))
    file = run.folder / "spec.json"  # `alma run` and `alma sweep` write it, with the path of the data
    settings = json.loads(file.read_bytes())["settings"] if file.exists() else {}
    if "data" not in settings:
        raise ValueError(
            f"{run.folder}: {config.env} with data from Python, which the run folder does not have; gating needs a "
            "stream whose id determines its data, or a run of `alma run --data PATH`"
        )
    return alma_env.make(config.env, **split_keywords(config.env, settings)[0])


def _tree(splits: tuple[int, ...]) -> _Node:
    """Return the tree of the first `GATES` splits; its nodes give the experts of the whole tree below them."""
    paths, whole = leaf_paths(splits[:GATES]), leaf_paths(splits)
    below = [[n for n, path in enumerate(whole) if path[: len(own)] == own] for own in paths]

    def node(path: list[int]) -> _Node:
        inside = [n for n, own in enumerate(paths) if own[: len(path)] == path]
        first, last = below[inside[0]][0], below[inside[-1]][-1]
        if len(inside) == 1:
            return _Node(first, last, len(path), (inside[0] + 0.5) / len(paths))
        gate = paths[inside[0]][len(path)] // 2
        left, right = node([*path, 2 * gate]), node([*path, 2 * gate + 1])
        return _Node(first, last, len(path), (left.across + right.across) / 2, (left, right))

    return node([])


def _share(shares: NDArray[np.float64], node: _Node) -> NDArray[np.float64]:
    """Return the share of each example that reaches a node (n,)."""
    total: NDArray[np.float64] = shares[:, node.first : node.last + 1].sum(1)
    return total


def _name(leaf: _Node) -> str:
    """Return the name of a leaf; experts are counted from 1."""
    return f"expert {leaf.first + 1}" if leaf.first == leaf.last else f"experts {leaf.first + 1}–{leaf.last + 1}"


def _map(data: DataSet) -> NDArray[np.float64]:
    """Return the t-SNE positions of the first test examples (n, 2) within the unit square."""
    try:
        from sklearn.manifold import TSNE  # takes a second to import
    except ImportError as error:
        raise MissingPackageError(
            f"the package scikit-learn, which draws the map, is missing; {how_to_install('scikit')}"
        ) from error
    flat = data.test_x[:EXAMPLES].reshape(min(EXAMPLES, len(data.test_x)), -1) / data.scale
    places = TSNE(perplexity=min(30.0, (len(flat) - 1) / 3), random_state=0).fit_transform(flat)
    low, high = places.min(0), places.max(0)
    scaled: NDArray[np.float64] = (places - low) / (high - low)
    return scaled


def _digits(axes: Axes, places: NDArray[np.float64], classes: NDArray[np.int64], number: int) -> None:
    """Draw each example as the number of its class."""
    colours = (*style.COLOURS, "#8C510A", "#7F7F7F", "#6A3D9A")
    for which in range(number):
        xs, ys = places[classes == which].T
        axes.scatter(xs, ys, 34, colours[which % len(colours)], marker=f"${which}$", linewidths=0)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes.set_axis_off()
    style.panel_title(axes, "t-SNE of test examples")


def _draw_tree(
    figure: SubFigure, root: _Node, places: NDArray[np.float64], shares: NDArray[np.float64], classes: NDArray[np.int64]
) -> None:
    leaves = [node for node in root.walk() if node.children is None]
    xs, ys = places.T
    largest = {}  # the leaf with the largest share of each class
    for which in np.unique(classes):
        means = [_share(shares, leaf)[classes == which].mean() for leaf in leaves]
        largest[which] = leaves[int(np.argmax(means))]
    canvas = figure.add_axes((0, 0, 1, 1))
    canvas.set_axis_off()
    canvas.set(xlim=(0, 1), ylim=(0, 1))
    high = 0.88 / (max(leaf.depth for leaf in leaves) + 1)
    wide = min(0.92 / len(leaves), 0.3)
    centre = {node: (node.across, 0.9 - (node.depth + 0.5) * high) for node in root.walk()}
    for node in root.walk():
        for child in node.children or ():
            canvas.plot(*zip(centre[node], centre[child], strict=True), color="#BBBBBB", linewidth=1.2, zorder=0)
    for node in root.walk():
        x, y = centre[node]
        axes = figure.add_axes((x - wide / 2, y - 0.36 * high, wide, 0.66 * high))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#BBBBBB")
        share = _share(shares, node)
        if node.children is None:
            axes.scatter(xs, ys, 4, share, cmap="Greys", vmin=-0.1, vmax=1, linewidths=0)
            own = [str(which) for which, leaf in largest.items() if leaf is node]
            label = f"{_name(node)}: {share.mean():.0%}\n{' '.join(own) or '–'}"
        else:
            right = _share(shares, node.children[1]) / np.maximum(share, 1e-12)
            shown = share > 0.5
            axes.scatter(xs, ys, 2, "#EEEEEE", linewidths=0)
            axes.scatter(xs[shown], ys[shown], 5, right[shown], cmap="cividis_r", vmin=0, vmax=1, linewidths=0)
            label = f"{share.mean():.0%}"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # hides the line from the gate above
        axes.set_title(label, fontsize="x-small", pad=5, bbox=box)


_CAPTION = (
    "gates: dark examples go right, light examples go left; leaves: darker examples have a larger share; "
    "numbers: share of all examples, and the classes of which the leaf has the largest share"
)
