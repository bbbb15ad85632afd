"""The Switch Transformer of the ALMA paper's text experiments: a causal language model whose experts can be copied.

Fedus et al., "Switch Transformers", section 2; ALMA paper, sections 4 and 5. It is a pre-norm decoder. In every second
layer, a Switch layer of experts replaces the feed-forward network:

x ← x + Drop(Attention(LN(x)));   x ← x + Drop(FFN or Switch (LN(x)));   logits = LN(x) Eᵀ

Details that the papers do not specify follow GPT-2: GELU, learned positions, initial weights. Shapes: n sequences of T
tokens, N = n T tokens of the micro-batch, width d, vocabulary size V, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils.checkpoint import checkpoint

from agents.networks.switch_size import SwitchSize
from alma_env.metering.function_cost import cost_varies_with

Init = Literal["gpt", "switch"]


class Routes(NamedTuple):
    """The routes of a Switch layer: the balance loss (), and each token's expert before dropping (n, T), int64."""

    balance: Tensor
    experts: Tensor


class SwitchTransformer(nn.Module):
    """Tokens (n, T) -> logits (n, T, V) of each next token.

    Dropout and jitter use the global generator, which a stage seeds. The initial weights use `generator`.

    Args:
        vocabulary: V.
        size: size of the network; `SIZES` has those of the paper.
        experts: number of experts in each Switch layer.
        capacity_factor: in training, an expert takes at most ceil(N / E · capacity_factor) tokens of a micro-batch.
            Dividing a batch into micro-batches therefore changes the result. At evaluation there is no limit.
        jitter: ε; in training, the router's input is multiplied by U(1 − ε, 1 + ε).
        dropout: of embeddings and residual branches.
        expert_dropout: of an expert's hidden units; None uses `dropout`.
        init: of the weights. ``gpt`` is N(0, 0.02²), divided by √(2 layers) for weights into the residual stream.
            ``switch`` is normal of variance 0.1 / fan-in, truncated at two standard deviations. Biases are 0.
        checkpointing: recompute each block in the backward pass instead of storing its activations.
        copy_noise: standard deviation of the Gaussian noise on a copied row of the router, in units of that of the row.
    """

    def __init__(
        self,
        vocabulary: int,
        size: SwitchSize,
        *,
        experts: int,
        capacity_factor: float = 1.0,
        jitter: float = 0.0,
        dropout: float = 0.0,
        expert_dropout: float | None = None,
        init: Init = "gpt",
        checkpointing: bool = False,
        copy_noise: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        for name, number in (("vocabulary", vocabulary), ("experts", experts)):
            if number < 1:
                raise ValueError(f"{name}={number}: must be at least 1; use {name}=1")
        inside = dropout if expert_dropout is None else expert_dropout
        for name, rate in (("jitter", jitter), ("dropout", dropout), ("expert_dropout", inside)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name}={rate}: must be at least 0 and below 1; use {name}=0 to turn it off")
        if not 0 < capacity_factor < math.inf:
            raise ValueError(
                f"capacity_factor={capacity_factor}: must be above 0 and finite; use "
                f"capacity_factor={experts} to drop no token"
            )
        if not 0 <= copy_noise < math.inf:
            raise ValueError(
                f"copy_noise={copy_noise}: must be at least 0 and finite; use copy_noise=0 for an exact copy"
            )
        if init not in get_args(Init):
            raise ValueError(f"init={init!r}: must be one of {', '.join(get_args(Init))}")
        self.vocabulary = vocabulary
        self.size = size
        self.checkpointing = checkpointing
        self.embedding = nn.Parameter(torch.empty(vocabulary, size.width))  # of the input and of the output, tied
        self.positions = nn.Parameter(torch.empty(size.context, size.width))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList()
        for number in range(1, size.layers + 1):
            switches = number % 2 == 0
            ffn = SwitchLayer(size, experts, capacity_factor, jitter, inside) if switches else FeedForward(size)
            self.blocks.append(Block(size, ffn, dropout))
        self.norm = nn.LayerNorm(size.width)
        draw = partial(_draw, init=init, layers=size.layers)
        for layer in self.mixtures:
            layer.draw, layer.copy_noise = draw, copy_noise
        for name, parameter in self.named_parameters():
            if "norm" not in name:  # LayerNorm starts with 1 and 0
                draw(name, parameter, generator)

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
        return self._run(tokens)[0]

    def forward_with_balance(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (n, T, V), and the sum of the balance losses of the Switch layers, each about 1.

        The training loss is the mean cross-entropy + 0.01 · balance.
        """
        logits, all_routes = self._run(tokens)
        return logits, torch.stack([routes.balance for routes in all_routes]).sum()

    def forward_with_shares(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits (n, T, V), and per Switch layer the share of each expert in each token (n, T, E): 1 or 0.

        In training mode this raises RuntimeError.
        """
        if self.training:
            raise RuntimeError(
                "training=True: experts drop tokens in training, so there are no complete routes; call eval() first"
            )
        logits, all_routes = self._run(tokens)
        return logits, [F.one_hot(routes.experts, self.experts) for routes in all_routes]

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Routes]]:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"tokens of shape {tuple(tokens.shape)}, {tokens.dtype}: must be token numbers (n, T), int32 or int64"
            )
        if tokens.shape[1] > self.size.context:
            raise ValueError(
                f"tokens of length {tokens.shape[1]}: the context is {self.size.context} tokens; use shorter "
                "sequences, or a model with a larger context"
            )
        x = F.embedding(tokens, self.embedding) + self.positions[: tokens.shape[1]]  # (n, T, d)
        x = self.dropout(x)
        all_routes = []
        for block in self.blocks:
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x, routes = checkpoint(block, x, use_reentrant=False)
            else:
                x, routes = block(x)
            if routes is not None:
                all_routes.append(routes)
        return F.linear(self.norm(x), self.embedding), all_routes  # (n, T, V)


class Block(nn.Module):
    """A transformer layer: attention, then a feed-forward network or a Switch layer, each with a residual."""

    def __init__(self, size: SwitchSize, feed_forward: FeedForward | SwitchLayer, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size.width)
        self.attention = Attention(size)
        self.feed_forward_norm = nn.LayerNorm(size.width)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

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
        self.inputs = _linear(size.width, 3 * size.width)  # queries, keys, values
        self.output = _linear(size.width, size.width)

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
        self.inner = _linear(size.width, size.ffn)
        self.outer = _linear(size.ffn, size.width)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return the output (n, T, d), and no routes."""
        return self.outer(F.gelu(self.inner(x))), None


class SwitchLayer(nn.Module):
    """A layer that sends each token to one of E feed-forward networks, the experts (Fedus et al., section 2).

    p = softmax(W_r x);   i = argmax p (tie: the lowest);   y = p_i · FFN_i(x)

    In training, an expert takes tokens up to its capacity, in their order over the whole micro-batch. The other tokens
    are dropped: y = 0. An expert computes one matrix product per linear layer over exactly its tokens, without padding.
    A single expert drops no tokens and has p = 1: it equals the plain feed-forward network.

    Attributes:
        router: W_r (E, d).
        inner_weight, inner_bias, outer_weight, outer_bias: of the experts, (E, 4 d, d), (E, 4 d), (E, d, 4 d), (E, d).
        splits: the expert that each growth step copied. The copies follow the initial experts.
        draw: function that draws initial weights, for experts that are added untrained.
        copy_noise: see `SwitchTransformer`.
    """

    draw: Callable[[str, Tensor, torch.Generator], None]
    copy_noise: float

    def __init__(
        self, size: SwitchSize, experts: int, capacity_factor: float, jitter: float, expert_dropout: float
    ) -> None:
        super().__init__()
        self.capacity_factor = capacity_factor
        self.jitter = jitter
        self.expert_dropout = nn.Dropout(expert_dropout)
        self.router = nn.Parameter(torch.empty(experts, size.width))
        self.inner_weight = nn.Parameter(torch.empty(experts, size.ffn, size.width))
        self.inner_bias = nn.Parameter(torch.empty(experts, size.ffn))
        self.outer_weight = nn.Parameter(torch.empty(experts, size.width, size.ffn))
        self.outer_bias = nn.Parameter(torch.empty(experts, size.width))
        self.splits: tuple[int, ...] = ()

    @property
    def experts(self) -> int:
        """Number of experts E."""
        return len(self.router)

    def capacity(self, tokens: int) -> int:
        """Return the capacity of an expert for a micro-batch of N tokens in training: ceil(N / E · capacity_factor)."""
        # Exact in decimals: as floats, 100 / 10 · 1.1 is above 11.
        return tokens if self.experts == 1 else math.ceil(Fraction(str(self.capacity_factor)) * tokens / self.experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Routes]:
        """Return the output (n, T, d), and the routes."""
        tokens = x.flatten(0, 1)  # (N, d)
        probabilities = self.probabilities(tokens)  # (N, E)
        share, chosen = probabilities.max(1)  # (N,) each; ties: the first
        if self.splits:
            chosen = self._first_equal()[chosen]
            share = probabilities.gather(1, chosen.unsqueeze(1)).squeeze(1)
        routed = chosen.unsqueeze(1) == torch.arange(self.experts, device=x.device)  # (N, E)
        fraction = routed.to(probabilities.dtype).mean(0)  # f (E,), which has no gradient
        balance = self.experts * (fraction * probabilities.mean(0)).sum()
        output = self._dispatch(tokens, chosen, routed.sum(0))  # (N, d)
        output = share.to(output.dtype).unsqueeze(1) * output
        return output.view(x.shape), Routes(balance, chosen.view(x.shape[:2]))

    def _first_equal(self) -> Tensor:
        """Return, for each expert, the first one with an equal row of the router (E,). Rounding can differ by row."""
        rows = self.router.detach()
        return (rows.unsqueeze(1) == rows).all(-1).int().argmax(1)

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Return p (N, E) of tokens (N, d), at least in float32: bfloat16 has too few digits to compare experts."""
        precision = torch.promote_types(tokens.dtype, torch.float32)
        tokens = tokens.to(precision)
        if self.training and self.jitter:
            tokens = tokens * torch.empty_like(tokens).uniform_(1 - self.jitter, 1 + self.jitter)
        with torch.autocast(tokens.device.type, enabled=False):
            return F.linear(tokens, self.router.to(precision)).softmax(1)

    def _dispatch(self, tokens: Tensor, chosen: Tensor, sizes: Tensor) -> Tensor:
        """Return FFN_i of each token (N, d), 0 if it is dropped. `sizes` (E,) are the numbers of tokens per expert."""
        order = chosen.argsort(stable=True)  # by expert, then in the order of the tokens
        queues = torch.split(order, sizes.tolist())
        if self.training and (capacity := self.capacity(len(tokens))) < len(tokens):
            queues = tuple(queue[:capacity] for queue in queues)
            order = torch.cat(queues)
            cost_varies_with(len(order))  # dropped tokens cost nothing
        # The gradient of one unbind is one stack. Indexing expert by expert would allocate a whole stack per expert.
        stacks = (self.inner_weight, self.inner_bias, self.outer_weight, self.outer_bias)
        outputs = []
        for queue, inner_weight, inner_bias, outer_weight, outer_bias in zip(
            queues, *(stack.unbind() for stack in stacks), strict=True
        ):
            hidden = F.gelu(F.linear(tokens.index_select(0, queue), inner_weight, inner_bias))
            outputs.append(F.linear(self.expert_dropout(hidden), outer_weight, outer_bias))
        kept = torch.cat(outputs)
        return kept.new_zeros(tokens.shape).index_copy(0, order, kept)

    @property
    def leaves(self) -> int:
        """Number of experts E; they correspond to the leaves of a tree of experts."""
        return self.experts

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Append a copy of expert `leaf` and of its row of the router (ALMA paper, section 4, gMoE on text).

        No token changes its expert: a copy has the logit of its original, and the first of equal experts is chosen. A
        copy gets no token until the balance loss or the noise changes its row. The function still changes: p_i becomes
        p_i / (1 + p_copied).
        """
        if not 0 <= leaf < self.experts:
            raise ValueError(f"leaf={leaf}: must be one of the experts 0 to {self.experts - 1}")
        copies = {name: stack.detach()[leaf : leaf + 1] for name, stack in self.named_parameters(recurse=False)}
        if self.copy_noise:
            row = copies["router"]
            draws = torch.randn(row.shape, generator=generator).to(row)
            copies["router"] = row + self.copy_noise * row.std(1, keepdim=True) * draws
        self._append(leaf, copies)

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Add untrained experts until the layer has these splits. Raise ValueError if it already has other splits."""
        if splits[: len(self.splits)] != self.splits:
            raise ValueError(f"splits={splits}: the layer already has the splits {self.splits}; use a new layer")
        for leaf in splits[len(self.splits) :]:
            new = {name: torch.empty_like(stack[:1]) for name, stack in self.named_parameters(recurse=False)}
            for name, parameter in new.items():
                self.draw(name, parameter, generator)
            self._append(leaf, new)

    def _append(self, leaf: int, new: dict[str, Tensor]) -> None:
        for name, stack in list(self.named_parameters(recurse=False)):
            grown = torch.cat([stack.detach(), new[name].detach()])
            setattr(self, name, nn.Parameter(grown, requires_grad=stack.requires_grad))
        self.splits += (leaf,)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with uninitialised weights; nn.Linear would draw them from the global generator."""
    device = torch.get_default_device()  # also the device of `with torch.device("meta"):`
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, device=device)  # type: ignore[no-untyped-call]
    return layer


def _draw(name: str, parameter: Tensor, generator: torch.Generator, *, init: Init, layers: int) -> None:
    """Draw initial weights in place, on the device of the generator."""
    with torch.no_grad():
        if name.endswith("bias"):
            parameter.zero_()
        elif init == "switch":
            std = math.sqrt(0.1 / parameter.shape[-1])
            nn.init.trunc_normal_(parameter, 0, std, -2 * std, 2 * std, generator=generator)
        else:
            to_residual = name.endswith(("output.weight", "outer.weight", "outer_weight"))
            nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if to_residual else 0.02, generator=generator)
