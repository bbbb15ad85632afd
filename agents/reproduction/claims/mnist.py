"""The paper's findings on MNIST (appendix, figure 7). Section 6 says that the models rank similarly as on CIFAR-10."""

from __future__ import annotations

from agents.reproduction.claims import methods, waits
from agents.reproduction.claims.comparisons import Findings

FINDINGS: Findings = {
    "mnist-small": ("h=4: w=1 is clearly worse than w=10 and w=50, for SM and Ens", waits.greedy_fails_small),
    "mnist-large": (
        "h=64: the CER at w=1 is within a tenth of the CER at w=10, for SM and Ens",
        waits.greedy_suffices_large,
    ),
    "mnist-ahead": ("h=64: the CER at w=1 is lower than at w=10, for SM and Ens", waits.greedy_is_ahead_large),
    "mnist-tardy": (
        "h=4 and 64: waiting for all data, w=500, has by far the worst CER, for SM and Ens",
        waits.tardy_is_worst,
    ),
    "mnist-final": (
        "h=64: waiting for all data, w=500, has the best final error, for SM and Ens",
        waits.tardy_ends_best,
    ),
    "mnist-ens": ("as on CIFAR-10: Ens < SM at equal width, in CER", methods.ensembles_help),
    "mnist-umix": ("as on CIFAR-10: UMix ≤ Ens at h=4, Ens ≤ UMix at h=64, in CER", methods.mixing_helps_small),
    "mnist-growing": ("as on CIFAR-10: gMoE is better than the SM from which it grows", methods.growing_helps),
    "mnist-size": (
        "as on CIFAR-10: gMoE is not better than an SM of its average size",
        methods.growing_is_no_better_than_its_size,
    ),
    "mnist-compute": (
        "as on CIFAR-10: at equal training FLOPs, SM and gEns are better than gMoE",
        methods.growing_is_worse_at_equal_compute,
    ),
    "mnist-gens": ("as on CIFAR-10: gEns has the worst CER at equal Mem", methods.growing_ensembles_are_worst),
}
