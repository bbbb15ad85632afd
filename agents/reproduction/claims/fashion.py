"""The findings on MNIST again, on Fashion-MNIST, which the paper does not have: do they carry over?

Findings at an equal size or cost are left out: two widths are too far apart for an interpolation between them.
"""

from __future__ import annotations

from agents.reproduction.claims import methods, waits
from agents.reproduction.claims.comparisons import Findings

FINDINGS: Findings = {
    "fashion-small": ("h=4: w=1 is clearly worse than w=10 and w=50, for SM and Ens", waits.greedy_fails_small),
    "fashion-large": (
        "h=32: the CER at w=1 is within a tenth of the CER at w=10, for SM and Ens",
        waits.greedy_suffices_large,
    ),
    "fashion-ahead": ("h=32: the CER at w=1 is lower than at w=10, for SM and Ens", waits.greedy_is_ahead_large),
    "fashion-tardy": (
        "h=4 and 32: waiting for all data, w=500, has by far the worst CER, for SM and Ens",
        waits.tardy_is_worst,
    ),
    "fashion-final": (
        "h=32: waiting for all data, w=500, has the best final error, for SM and Ens",
        waits.tardy_ends_best,
    ),
    "fashion-ens": ("Ens < SM at equal width, in CER", methods.ensembles_help),
    "fashion-umix": ("UMix ≤ Ens at h=4, Ens ≤ UMix at h=32, in CER", methods.mixing_helps_small),
    "fashion-growing": ("gMoE is better than the SM from which it grows", methods.growing_helps),
}
