"""Tables of CER by waiting time."""

from __future__ import annotations

from agents.catalogue.spec import RunSpec
from agents.reproduction.tables import cer_by_wait

from .synthetic import constant


def run(agent: str, width: int, wait: int, seed: int, error: float, **others):
    return constant(RunSpec("MNIST-ALMA-v0", agent, width, wait=wait, seed=seed, **others), error)


def test_a_line_is_a_method_and_width_and_a_column_is_a_waiting_time():
    runs = [run("sm", 4, 10, seed, 0.2) for seed in range(2)]
    runs += [run("sm", 4, 50, seed, error) for seed, error in enumerate((0.3, 0.5))]
    runs += [run("sm", 4, 50, 0, 0.5, replay=True), run("ens", 8, 10, 0, 0.1), run("ens", 8, 50, 0, 0.4)]
    table, _, caption = cer_by_wait(runs).partition("\n\n")
    # The sum of 501 errors: 500 ticks and tick 0.
    assert [[group.strip() for group in line.strip("|").split("|")] for line in table.splitlines()] == [
        ["method and width", "w = 10", "w = 50"],
        ["---", "---:", "---:"],
        ["SM-4", "**100.2 ± 0.0**", "200.4 ± 636.6"],
        ["SM-4, replay", "–", "250.5 (1)"],
        ["Ens-8", "**50.1** (1)", "200.4 (1)"],
    ]
    assert caption.startswith("CER, mean ± 95 % interval over 2 seeds, or over the number of seeds in brackets.")


def test_one_waiting_time_or_a_policy_gives_no_table():
    assert cer_by_wait([run("sm", 4, 10, 0, 0.2), run("ens", 4, 10, 0, 0.1)]) == ""
    by_policy = constant(RunSpec("MNIST-ALMA-v0", "sm", 4, wait=None, policy="doubling"), 0.2)
    assert cer_by_wait([by_policy]) == ""
