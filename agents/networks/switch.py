"""The Switch Transformer of the ALMA paper's text experiments: a causal language model whose experts can be copied.

Fedus et al., "Switch Transformers", section 2; ALMA paper, sections 4 and 5. It is a pre-norm decoder. In every second
layer, a Switch layer of experts replaces the feed-forward network:

x ← x + Drop(Attention(LN(x)));   x ← x + Drop(FFN or Switch (LN(x)));   logits = LN(x) Eᵀ

Details that the papers do not specify follow GPT-2: GELU, learned positions, initial weights. Shapes: n sequences of T
tokens, width d, vocabulary size V, E experts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_layer import Routes, SwitchLayer
from agents.networks.switch_size import SwitchSize
from agents.networks.switch_weights import draw_weights, undrawn_linear
from agents.networks.token_loss import token_cross_entropy


class Outputs(NamedTuple):
    """What a Switch Transformer computes for tokens (n, T).

    Attributes:
        logits: (n, T, V) of each next token.
        balance: (), the sum of the balance losses of the Switch layers, each about 1.
        experts: per Switch layer, each token's expert before dropping (n, T), int64.
    """

    logits: Tensor
    balance: Tensor
    experts: list[Tensor]


class SwitchTransformer(nn.Module):
    """Tokens (n, T) -> logits (n, T, V) of each next token.

    Dropout and jitter use the global generator, which a stage seeds. The initial weights use `generator`.
    """

    def __init__(self, config: SwitchConfig, *, generator: torch.Generator) -> None:
        super().__init__()
        size = config.size
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, size.width))  # of input and output, tied
        self.positions = nn.Parameter(torch.empty(size.context, size.width))
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, switches=number % 2 == 0) for number in range(1, size.layers + 1))
        self.norm = nn.LayerNorm(size.width)
        for name, parameter in self.named_parameters():
            if "norm" not in name:  # LayerNorm starts with 1 and 0
                draw_weights(name, parameter, config, generator)

    @property
    def mixtures(self) -> list[SwitchLayer]:
        """The Switch layers, in the order of the forward pass."""
        return [block.feed_forward for block in self.blocks if isinstance(block.feed_forward, SwitchLayer)]

    @property
    def experts(self) -> int:
        """Number of experts in each Switch layer."""
        return self.mixtures[0].experts

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (n, T, V) of tokens (n, T), int32 or int64, with T at most the context."""
        return self.outputs(tokens).logits

    def training_loss(self, x: Tensor, y: Tensor, balance: float) -> Tensor:
        """Return the loss () of tokens x (n, T) with the next tokens y (n, T), both int32 or int64.

        It is the mean cross-entropy in nats + `balance` · the balance loss. There can be only one backward pass.
        """
        outputs = self.outputs(x)
        return token_cross_entropy(outputs.logits.flatten(0, 1), y.flatten().long()) + balance * outputs.balance

    def forward_with_shares(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits (n, T, V), and per Switch layer the share of each expert in each token (n, T, E): 1 or 0.

        In training mode this raises RuntimeError.
        """
        if self.training:
            raise RuntimeError(
                "training=True: experts drop tokens in training, so there are no complete routes; call eval() first"
            )
        outputs = self.outputs(tokens)
        return outputs.logits, [F.one_hot(experts, self.experts) for experts in outputs.experts]

    def outputs(self, tokens: Tensor) -> Outputs:
        """Return logits, balance loss and routes of tokens (n, T), int32 or int64, with T at most the context.

        Raises:
            ValueError: the shape, the dtype or the length of the tokens is wrong.
        """
        size = self.config.size
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"tokens of shape {tuple(tokens.shape)}, {tokens.dtype}: must be token numbers (n, T), int32 or int64"
            )
        if tokens.shape[1] > size.context:
            raise ValueError(
                f"tokens of length {tokens.shape[1]}: the context is {size.context} tokens; use shorter sequences, or "
                "a model with a larger context"
            )
        x = F.embedding(tokens, self.embedding) + self.positions[: tokens.shape[1]]  # (n, T, d)
        x = self.dropout(x)
        all_routes = []
        for block in self.blocks:
            if self.config.checkpointing and self.training and torch.is_grad_enabled():
                x, routes = checkpoint(block, x, use_reentrant=False)
            else:
                x, routes = block(x)
            if routes is not None:
                all_routes.append(routes)
        logits = F.linear(self.norm(x), self.embedding)
        balance = torch.stack([routes.balance for routes in all_routes]).sum()
        return Outputs(logits, balance, [routes.experts for routes in all_routes])


class Block(nn.Module):
    """A transformer layer: attention, then a feed-forward network or a Switch layer, each with a residual."""

    def __init__(self, config: SwitchConfig, *, switches: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.size.width)
        self.attention = Attention(config.size)
        self.feed_forward_norm = nn.LayerNorm(config.size.width)
        self.feed_forward = SwitchLayer(config) if switches else FeedForward(config.size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Routes | None]:
        """Return the output (n, T, d), and the routes of a Switch layer."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        branch, routes = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(branch), routes


class Attention(nn.Module):
    """Causal self-attention with several heads and without dropout: (n, T, d) -> (n, T, d)."""

    def __init__(self, size: SwitchSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.inputs = undrawn_linear(size.width, 3 * size.width)  # queries, keys, values
        self.output = undrawn_linear(size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, T, d); a token attends to itself and to earlier tokens."""
        heads = self.inputs(x).unflatten(-1, (3, self.heads, -1))  # (n, T, 3, heads, d / heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (n, heads, T, d / heads)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(seen.transpose(1, 2).flatten(2))  # (n, T, d)
        return output


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them: (n, T, d) -> (n, T, d)."""

    def __init__(self, size: SwitchSize) -> None:
        super().__init__()
        self.inner = undrawn_linear(size.width, size.ffn)
        self.outer = undrawn_linear(size.ffn, size.width)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return the output (n, T, d), and no routes."""
        return self.outer(F.gelu(self.inner(x))), None
