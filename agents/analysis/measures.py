"""What a person sees of finished runs in a terminal: a table of the three metrics.

Runs that differ in nothing but their seeds are one line of the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from agents.statistics import Interval
from alma_env import Ledger, Score


def label(config: Mapping[str, Any]) -> str:
    """What a run is called in tables and pictures: all of its configuration that is usually compared, but the seed.

    >>> label({"agent": {"id": "sm", "width": 32, "policy": {"wait": 5, "replay": True}}})
    'sm 32, wait 5, replay'
    """
    agent = config["agent"]
    policy = agent.get("policy", "")
    if isinstance(policy, dict):
        own = [f"{name}={value}" for name, value in policy.items() if name not in ("name", "replay", "growth")]
        when = f"{policy['name']}({', '.join(own)})" if "name" in policy else f"wait {policy['wait']}"
        policy = f", {when}" + (", replay" if policy["replay"] else "")
    elif policy:
        policy = ", " + re.sub(r"^[\w.]*\.(?=\w+\()", "", policy)  # a dataclass without its module
    name: str = f"{agent.get('id', 'agent')} {agent.get('width', '')}".strip()
    return name + str(policy)


def schedule(config: Mapping[str, Any]) -> str:
    """When a run trains, in words, as `label` has it.

    >>> schedule({"agent": {"id": "sm", "width": 32, "policy": {"wait": 5, "replay": True}}})
    'wait 5, replay'
    """
    return label({"agent": {"policy": config["agent"].get("policy", "")}}).partition(", ")[2] or "at every tick"


def labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each of several runs is called: alike if they differ in nothing but their seeds, else with what differs.

    >>> def config(epochs, seed):
    ...     agent = {"id": "sm", "width": 32, "seed": seed, "stage": {"epochs": epochs}}
    ...     return {"env": "Digits-ALMA-v0", "seed": seed, "agent": agent}
    >>> labels([config(1, 0), config(1, 1), config(3, 0)])
    ['sm 32, epochs=1', 'sm 32, epochs=1', 'sm 32, epochs=3']
    """
    several = len({config.get("env") for config in configs}) > 1
    short = [f"{config.get('env')} " * several + label(config) for config in configs]
    items = [dict(by_path(config)) for config in configs]
    alike: dict[str, list[dict[str, str]]] = {}
    for name, item in zip(short, items, strict=True):
        alike.setdefault(name, []).append(item)
    return [", ".join([name, *_particulars(item, alike[name])]) for name, item in zip(short, items, strict=True)]


def _particulars(item: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> list[str]:
    """``key=value`` for all that is not the same in all others; a key is a bare name where that is enough."""
    paths = sorted({path for other in others for path in other})
    paths = [path for path in paths if len({other.get(path) for other in others}) > 1]
    bare = [path.rpartition(".")[2] for path in paths]
    return [
        f"{name if bare.count(name) == 1 else path}={item[path]}"
        for path, name in zip(paths, bare, strict=True)
        if path in item
    ]


def by_path(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """All values of a configuration as (dotted path, text), but the seeds."""
    for name, value in config.items():
        path = prefix + name
        if path in ("seed", "agent.seed"):
            continue
        if isinstance(value, Mapping):
            yield from by_path(value, path + ".")
        else:
            yield path, value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Measure:
    """What the errors of a data set are, and how they are summed up over the ticks.

    Attributes:
        name: of the error of one tick.
        plural: of several, for the name of the picture's file.
        total: the field of ``Score`` that sums them up.
        heading: of that column.
        meaning: of that column, for the caption.
        digits: after the point, of the sum and of one error.
        logarithmic: how the curves are drawn.
    """

    name: str
    plural: str
    total: str
    heading: str
    meaning: str
    digits: tuple[int, int]
    logarithmic: bool = False

    def sum(self, score: Score) -> float:
        """What the errors add up to; NaN where there is nothing to add up, before tick 1."""
        value = getattr(score, self.total)
        return float("nan") if value is None else float(value)


ERROR_RATE = Measure("error", "errors", "cer", "CER", "sum of the test error over ticks 0..B (fractions)", (2, 3))
# At tick 0 it is the size of the vocabulary, beside which nothing else would be seen in a sum, or with an axis from 0.
PERPLEXITY = Measure(
    "perplexity",
    "perplexities",
    "mean_error_from_1",
    "average perplexity",
    "per token of the test text, mean over ticks 1..B",
    (2, 2),
    logarithmic=True,
)


def measure_of(protocol: Mapping[str, Any]) -> Measure:
    """The measure of an environment by its ``protocol()``: text has a vocabulary."""
    return PERPLEXITY if "vocabulary" in protocol else ERROR_RATE


def table(groups: Mapping[str, Sequence[Ledger]], *, title: str, measure: Measure = ERROR_RATE) -> Table:
    """One line per configuration: CER, Mem, Comp and final error, mean with 95 % interval over its seeds.

    Args:
        groups: label of a configuration → the ledgers of its seeds.
        title: headline.
        measure: what their errors are; of text the average perplexity stands in the place of CER.
    """
    out = Table(
        title=escape(title),
        title_justify="left",
        caption=_CAPTION.format(heading=measure.heading, meaning=measure.meaning),
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,  # 80 columns suffice
        pad_edge=False,
    )
    out.add_column("agent", overflow="fold")  # a label is never cut: its end may be what differs
    for name in ("n", measure.heading, f"final {measure.name}", "Mem", "Comp", "paper", "s"):
        # What is long stands in two lines, so that 80 columns suffice.
        heading = name.replace(" ", "\n") if len(name) > 12 else name
        out.add_column(heading, justify="right", no_wrap=True)
    for label, ledgers in groups.items():
        out.add_row(escape(label), str(len(ledgers)), *cells([ledger.score() for ledger in ledgers], measure))
    return out


_CAPTION = (
    "n: seeds. {heading}: {meaning}. Mem: sum of parameters. Comp: FLOPs executed, "
    "validation and growth included; paper: 6 per forward multiply-add in training, plus growth. "
    "±: 95 % interval over seeds."
)


def cells(scores: Sequence[Score], measure: Measure = ERROR_RATE) -> tuple[str, ...]:
    """The columns of one configuration's seeds after their number, as text."""

    def over(name: str) -> list[float]:
        return [float(getattr(score, name)) for score in scores]

    of_sum, of_one = measure.digits
    return (
        Interval.of([measure.sum(score) for score in scores]).text(f".{of_sum}f"),
        Interval.of(over("final_error")).text(f".{of_one}f"),
        *(engineering(mean(over(name))) for name in ("mem", "comp", "paper_flops")),
        f"{mean(over('seconds')):.0f}",
    )


UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def engineering(value: float) -> str:
    """A large number with three digits and a unit letter.

    >>> engineering(26506), engineering(3.4e12), engineering(7)
    ('26.5 k', '3.4 T', '7')
    """
    for limit, letter in UNITS:
        if abs(value) >= limit:
            return f"{value / limit:.3g} {letter}"
    return f"{value:.3g}"
