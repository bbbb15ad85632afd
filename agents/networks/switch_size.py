"""The sizes of Switch Transformers, with their parameters and FLOPs in closed form (ALMA paper, section 5, text).

>>> [round(parameter_count(50_257, SIZES["large"], experts) / 1e6) for experts in (4, 6, 8, 12)]  # paper: 210 to 436
[209, 266, 322, 436]
>>> [round(paper_gflops(SIZES[name], 50_257)) for name in ("base", "large")]  # as published
[42, 126]
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SwitchSize:
    """Layers (every second is a Switch layer), width d, attention heads, and the maximum tokens per input."""

    layers: int
    width: int
    heads: int
    context: int = 512

    def __post_init__(self) -> None:
        for name, least in (("layers", 2), ("width", 1), ("heads", 1), ("context", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {least}; use {name}={least}")
        if self.width % self.heads:
            raise ValueError(
                f"width={self.width}, heads={self.heads}: the width must be a multiple of the heads; use heads=1"
            )

    @property
    def ffn(self) -> int:
        """Hidden units of each feed-forward network, 4 d."""
        return 4 * self.width

    @property
    def switch_layers(self) -> int:
        """Number of layers with experts: layers 2, 4, 6, …, counted from 1."""
        return self.layers // 2


SIZES = {
    "tiny": SwitchSize(layers=2, width=128, heads=2),
    "base": SwitchSize(layers=6, width=512, heads=8),
    "large": SwitchSize(layers=12, width=768, heads=12),
}


def parameter_count(vocabulary: int, size: SwitchSize, experts: int) -> int:
    """Return the number of parameters; an expert has 8 d² + 6 d, d of them in the router, for width d."""
    d = size.width
    attention, norms, ffn = 4 * d * d + 4 * d, 4 * d, 8 * d * d + 5 * d
    ffns = size.layers - size.switch_layers + experts * size.switch_layers
    routers = experts * size.switch_layers * d
    return (vocabulary + size.context) * d + size.layers * (attention + norms) + ffns * ffn + routers + 2 * d


def forward_flops(vocabulary: int, size: SwitchSize, experts: int, tokens: int) -> int:
    """Return the FLOPs of the forward pass of one sequence of s = `tokens` without drops, 1 multiply-add = 2 FLOPs.

    It is 24 s L d² + 4 s² L d + 2 s d V, plus 2 s d E per router. Attention counts in full, as if it were not causal.
    """
    s, d, layers = tokens, size.width, size.layers
    routers = 2 * s * d * experts * size.switch_layers
    return 24 * s * layers * d * d + 4 * s * s * layers * d + 2 * s * d * vocabulary + routers


def paper_gflops(size: SwitchSize, vocabulary: int, tokens: int = 512) -> float:
    """Return the GFLOPs of one sequence by the formula that gives the ALMA paper's numbers, 42 and 126.

    It is 24 s L d² (1 + s / 6d + V / 16 L d): `forward_flops` without the routers and a quarter of the output layer.
    """
    s, d, layers = tokens, size.width, size.layers
    return 24 * s * layers * d**2 * (1 + s / (6 * d) + vocabulary / (16 * layers * d)) / 1e9
