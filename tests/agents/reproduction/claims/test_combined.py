"""The combined test weighs each comparison and each seed equally; power agrees with simulated tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from agents.reproduction.claims.combined import combine, seeds_to_decide
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, UNDECIDED, PairedComparison


def _of(*differences: dict[int, float], scales: tuple[float, ...] = ()) -> list[PairedComparison]:
    pairs = zip(differences, scales or (1.0,) * len(differences), strict=True)
    return [PairedComparison(str(number), "CER", one, scale=scale) for number, (one, scale) in enumerate(pairs)]


def test_comparisons_of_different_scales_weigh_the_same():
    combined = combine(_of({0: -100.0, 1: -120.0}, {0: 0.01, 1: 0.02}, scales=(1_000.0, 0.1)))
    assert combined.per_seed == pytest.approx([0.0, (0.12 - 0.2) / 2])
    assert combined.comparisons == 2


def test_undecided_comparisons_together_decide():
    """Noise that two comparisons of a seed share with opposite signs cancels in the mean of the seed."""
    noise = [5.0, -4.0, 1.0]
    one, other = ({seed: -1.0 + sign * value + 0.1 * seed for seed, value in enumerate(noise)} for sign in (1, -1))
    together = _of(one, other)
    assert {c.verdict(c.p_value) for c in together} == {UNDECIDED}
    assert combine(together).verdict == HOLDS
    assert (
        combine(_of(*({seed: -value for seed, value in each.items()} for each in (one, other)))).verdict == CONTRADICTED
    )


def test_the_test_uses_the_seeds_that_its_comparisons_share():
    three, ten = ({seed: -1.0 - seed for seed in range(count)} for count in (3, 10))
    assert len(combine(_of(three, three, ten)).per_seed) == 3
    few = combine(_of(three, ten, ten))  # 2 comparisons × 9 against 3 × 2
    assert (few.comparisons, len(few.per_seed)) == (2, 10)
    elsewhere = {seed: -1.0 - seed for seed in (3, 4, 5)}
    most = combine(_of(three, three, three, elsewhere))
    assert (most.comparisons, len(most.per_seed)) == (3, 3)
    assert combine(_of({0: 1.0}, {})) is None
    assert combine(_of({0: 1.0, 1: 1.0}, {2: 1.0, 3: 1.0})) is None


@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_the_test_is_evidence_for_closeness_and_never_against_it(noise):
    """Each mean is noise around 0; much noise brings every mean to the other side of the limit."""
    random = np.random.default_rng(0)
    verdicts = []
    for _ in range(50):
        values = random.normal(0.0, noise, (20, 10))
        close = [PairedComparison(str(row), "CER", dict(enumerate(values[row])), "close", 0.1) for row in range(20)]
        combined = combine(close)
        verdicts.append(combined.verdict)
        assert combined.interval.mean > 0 or combined.seeds_needed is None
    assert set(verdicts) == {HOLDS if noise < 0.1 else UNDECIDED}


@pytest.mark.parametrize("effect", [0.5, 1.0, 2.0])
def test_the_seeds_to_decide_have_a_power_of_80_percent(effect):
    seeds = seeds_to_decide(effect, 1.0)
    random = np.random.default_rng(0)

    def power(n: int) -> float:
        values = random.normal(effect, 1.0, (20_000, n))
        return float((stats.ttest_1samp(values, 0.0, axis=1).pvalue < 0.05).mean())

    assert power(seeds) > 0.79
    assert power(seeds - 1) < 0.81


def test_more_tests_need_more_seeds_and_no_spread_needs_two():
    assert seeds_to_decide(1.0, 1.0) < seeds_to_decide(1.0, 1.0, tests=10)
    assert seeds_to_decide(-1.0, 1.0) == seeds_to_decide(1.0, 1.0)
    assert seeds_to_decide(1.0, 0.0) == 2
    assert seeds_to_decide(0.0, 0.0) is None
