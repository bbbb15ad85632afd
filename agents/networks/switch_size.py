"""The sizes of Switch Transformers, and in closed form what they hold and cost (ALMA paper, section 5, text).

>>> [round(parameter_count(50_257, SIZES["large"], experts) / 1e6) for experts in (4, 6, 8, 12)]  # paper: 210 to 436
[209, 266, 322, 436]
>>> [round(paper_gflops(SIZES[name], 50_257)) for name in ("base", "large")]  # as published
[42, 126]
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SwitchSize:
    """Layers, of which every second is a Switch layer; width d; attention heads; the longest input in tokens."""

    layers: int
    width: int
    heads: int
    context: int = 512

    def __post_init__(self) -> None:
        for name, least in (("layers", 2), ("width", 1), ("heads", 1), ("context", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {least}")
        if self.width % self.heads:
            raise ValueError(f"width={self.width}, heads={self.heads}: the width must be a multiple of the heads")

    @property
    def ffn(self) -> int:
        """Hidden units of each feed-forward network, 4 d."""
        return 4 * self.width

    @property
    def switch_layers(self) -> int:
        """Layers with experts: 2, 4, 6, …, counted from 1."""
        return self.layers // 2


SIZES = {
    "tiny": SwitchSize(layers=2, width=128, heads=2),
    "base": SwitchSize(layers=6, width=512, heads=8),
    "large": SwitchSize(layers=12, width=768, heads=12),
}


def parameter_count(vocabulary: int, size: SwitchSize, experts: int) -> int:
    """Parameters of a model: with d = width, 8 d² + 6 d per expert, of which d are the router's."""
    d = size.width
    attention, norms, ffn = 4 * d * d + 4 * d, 4 * d, 8 * d * d + 5 * d
    ffns = size.layers - size.switch_layers + experts * size.switch_layers
    routers = experts * size.switch_layers * d
    return (vocabulary + size.context) * d + size.layers * (attention + norms) + ffns * ffn + routers + 2 * d


def forward_flops(vocabulary: int, size: SwitchSize, experts: int, tokens: int) -> int:
    """FLOPs of the forward pass of one sequence of s = `tokens` where none is dropped, 1 multiply-add = 2 FLOPs.

    24 s L d² + 4 s² L d + 2 s d V, and 2 s d E for each router. Attention is charged in full, as if it were not causal.
    """
    s, d, layers = tokens, size.width, size.layers
    routers = 2 * s * d * experts * size.switch_layers
    return 24 * s * layers * d * d + 4 * s * s * layers * d + 2 * s * d * vocabulary + routers


def paper_gflops(size: SwitchSize, vocabulary: int, tokens: int = 512) -> float:
    """GFLOPs of one sequence by the formula that gives the ALMA paper's numbers, 42 and 126.

    24 s L d² (1 + s / 6d + V / 16 L d): the plain count without routers and a quarter of the output layer.
    """
    s, d, layers = tokens, size.width, size.layers
    return 24 * s * layers * d**2 * (1 + s / (6 * d) + vocabulary / (16 * layers * d)) / 1e9
