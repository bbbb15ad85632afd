"""The command ``alma policy judge``: learned schedules, or any schedule, beside their rivals, at prices."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import geometric_mean

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agents.analysis.schedules.contests import require_schedules
from agents.analysis.schedules.front import Front
from agents.analysis.schedules.priced_comparison import Rivalry, compare_at_prices
from agents.cli import json_output
from agents.cli.console import print_uncut
from agents.cli.decisions.tuning import PRICE, pairs_of_prices
from agents.cli.options.recorded_comparisons import FILES
from agents.figures import rivals as picture
from agents.figures.files import require_picture
from agents.policies.learned.file_checks import digest_of
from agents.policies.learned.schedule import SHIPPED as NETWORKS
from agents.rl.registration import SHIPPED
from agents.runs import load
from agents.sweeps.progress import say


def judge(options: argparse.Namespace, console: Console) -> int:
    """Print what learned schedules cost beside their rivals, each at its own price; or what a subject costs."""
    said = json_output.messages(console, as_json=options.json)
    require_picture(options.picture)
    if bool(options.recorded) == bool(options.folder):
        given = f"folders {[str(one) for one in options.folder]}"
        raise ValueError(f"{given}: give folders of runs, or --recorded{', not both' * bool(options.folder)}")
    prices = pairs_of_prices(options.pass_price or [], options.memory_price or [0.0])
    if (options.subject is None) != (not prices) or (options.subject is None and options.memory_price is not None):
        raise ValueError(
            f"--subject {options.subject}, --pass-price {options.pass_price}, --memory-price {options.memory_price}: a "
            "subject needs prices, and learned schedules have their own; give --subject and --pass-price, or no price"
        )
    require_schedules([*options.rival, *([] if options.subject is None else [options.subject])])
    packed = [SHIPPED / f"{file}.jsonl.xz" for file in FILES.get(options.recorded, ())]
    runs, left_out = load.find(*(packed or options.folder))
    say(said, *left_out)
    rivalries, fronts, notes = compare_at_prices(runs, options.subject, prices, options.rival)
    if options.recorded:
        digests = {str(run.run_config.agent.schedule.get("digest")) for run in runs}
        earlier = digests - {digest_of(file) for file in NETWORKS.values()} - {"None"}
        notes += [f"network {digest}: not the one of --policy learned" for digest in sorted(earlier)]
    say(said, *notes)
    if options.json:
        json_output.write({"rivalries": rivalries, "fronts": fronts})
    else:
        _print(rivalries, fronts, "learned" if options.subject is None else "subject", console)
    if options.picture is not None:
        say(said, f"Picture: {picture.draw(rivalries, options.picture)}")
    return 0


def _print(rivalries: Sequence[Rivalry], fronts: Sequence[Front], own: str, console: Console) -> None:
    """Print the tables; ``own`` names the subject in their columns."""
    sizes = any(max(one.size, one.rival_size) > 1 for one in rivalries)
    for title in dict.fromkeys(one.runs for one in rivalries):
        rival = Column("rival", overflow="fold", min_width=15)
        numbers = ("its cost", own, f"{own} − rival", "p", "worst", "passes")
        shown = [one for one in rivalries if one.runs == title]
        table = Table("price", rival, *numbers, *["sizes"] * sizes, box=None, title=title)
        for one in shown:
            table.add_row(*_cells(one), *[f"{one.size:.2f}, {one.rival_size:.2f}"] * sizes)
        print_uncut(console, table)
    networks = Table("network", "other network", "comparisons", "cost divided by that of the other", box=None)
    for (network, other), ratios in _between_networks(rivalries).items():
        networks.add_row(network, other, str(len(ratios)), f"{geometric_mean(ratios):.3f}")
    if networks.rows:
        print_uncut(console, networks)
    volumes = Table("runs", "schedules", "hypervolume", "learned minus this", box=None)
    for front in fronts:
        difference = "" if front.schedules == "learned" else front.difference.text("+.3f")
        volumes.add_row(front.runs, front.schedules, front.hypervolume.text(".3f"), difference)
    if fronts:
        print_uncut(console, volumes)
    legend = (
        f"{PRICE} Cost: CER of ticks 0 to B, and FLOPs and memory at their prices, in errors, mean over seeds; ±: 95 % "
        "interval (Student's t); differences are paired by seed; p: paired t-test with Holm's correction over the "
        f"prices; {own} and rival: highest cost of a seed (worst), mean full passes (passes)"
    )
    if sizes:
        legend += ", mean parameters divided by those of the untrained predictor (sizes)"
    if networks.rows:
        legend += "; cost divided by that of the other: geometric mean over learners and prices, on common seeds"
    if fronts:
        legend += "; hypervolume: of the front of CER and full passes up to two passes, as a share"
    console.print(legend, highlight=False)


def _between_networks(rivalries: Sequence[Rivalry]) -> dict[tuple[str, str], list[float]]:
    """Return the cost of each learned schedule divided by that of each other one, by their digests."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for one in rivalries:
        if one.network is not None and one.rival_network is not None:
            pair = one.network, one.rival_network
            ratios.setdefault(pair, []).append(one.cost.mean / one.rival_cost.mean)
    return ratios


def _cells(one: Rivalry) -> list[str]:
    named = f"{one.rival}: {one.schedule}" if one.rival.startswith("best") else one.rival
    return [
        str(one.prices),
        escape(named),
        one.rival_cost.text(),
        one.cost.text(),
        f"{one.difference.text('+.2f')} ({one.difference.mean / one.rival_cost.mean:+.0%})",
        "" if one.p is None else "< 0.001" if one.p < 0.001 else f"{one.p:.3f}",
        f"{one.worst:.1f}, {one.rival_worst:.1f}",
        f"{one.passes:.2f}, {one.rival_passes:.2f}",
    ]
