"""The Switch Transformer of the ALMA paper's text experiments: a causal language model whose experts can be copied.

Fedus et al., "Switch Transformers", section 2; ALMA paper, sections 4 and 5. A pre-norm decoder in which every second
layer's feed-forward network is replaced by a Switch layer of experts:

x ← x + Drop(Attention(LN(x)));   x ← x + Drop(FFN or Switch (LN(x)));   logits = LN(x) Eᵀ

What the papers leave open is as in GPT-2: GELU, learned positions, initial weights. Shapes: n sequences of T tokens,
N = n T tokens of the micro-batch, width d, V words in the vocabulary, E experts.
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

from agents.switch_size import SwitchSize
from alma_env import meter

Init = Literal["gpt", "switch"]


class Routing(NamedTuple):
    """How a Switch layer routed: the balance loss (scalar), and each token's expert before dropping (n, T), int64."""

    balance: Tensor
    experts: Tensor


class SwitchTransformer(nn.Module):
    """Tokens (n, T) -> logits (n, T, V) of each next token.

    Dropout and jitter draw from the global generator, which a stage seeds; the initial weights from `generator`.

    Args:
        vocabulary: V.
        size: of the network; those of the paper are in `SIZES`.
        experts: in each Switch layer.
        capacity_factor: in training an expert takes at most ceil(N / E · capacity_factor) tokens of a micro-batch, so
            that splitting a batch into micro-batches changes the result. At evaluation it takes all.
        jitter: ε; in training the router's input is multiplied by U(1 − ε, 1 + ε).
        dropout: of embeddings and residual branches.
        expert_dropout: of an expert's hidden units; None: as `dropout`.
        init: of the weights. ``gpt``: N(0, 0.02²), on the way into the residual stream divided by √(2 layers);
            ``switch``: normal of variance 0.1 / fan-in, cut at two deviations. Biases are 0.
        checkpointing: recompute each block in the backward pass in place of keeping its activations.
        copy_noise: deviation of the Gaussian noise on a copied row of the router, in units of the row's own.
        generator: of the initial weights.

    Raises:
        ValueError: an argument is out of its range.
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
                raise ValueError(f"{name}={number}: must be at least 1")
        inside = dropout if expert_dropout is None else expert_dropout
        for name, rate in (("jitter", jitter), ("dropout", dropout), ("expert_dropout", inside)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name}={rate}: must be at least 0 and below 1; 0 turns it off")
        if not 0 < capacity_factor < math.inf:
            raise ValueError(f"capacity_factor={capacity_factor}: must be above 0 and finite; {experts} drops nothing")
        if not 0 <= copy_noise < math.inf:
            raise ValueError(f"copy_noise={copy_noise}: must not be negative; 0 copies a row as it is")
        if init not in get_args(Init):
            raise ValueError(f"init={init!r}: choose one of {', '.join(get_args(Init))}")
        self.vocabulary = vocabulary
        self.size = size
        self.checkpointing = checkpointing
        self.embedding = nn.Parameter(torch.empty(vocabulary, size.width))  # of the input and, tied, of the output
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
            if "norm" not in name:  # LayerNorm begins with 1 and 0
                draw(name, parameter, generator)

    @property
    def mixtures(self) -> list[SwitchLayer]:
        """The Switch layers, in the order of the forward pass."""
        return [block.feed_forward for block in self.blocks if isinstance(block.feed_forward, SwitchLayer)]

    @property
    def experts(self) -> int:
        """Experts in each Switch layer."""
        return self.mixtures[0].experts

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (n, T), int32 or int64, T up to the context -> logits (n, T, V)."""
        return self._run(tokens)[0]

    def forward_with_balance(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The logits (n, T, V), and the balance losses' sum over the Switch layers, a scalar of about their number.

        The training loss is the mean cross-entropy + 0.01 · balance.
        """
        logits, routings = self._run(tokens)
        return logits, torch.stack([routing.balance for routing in routings]).sum()

    def forward_with_routes(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits (n, T, V), and per Switch layer the expert of each token (n, T), int64, where none is dropped.

        Raises:
            RuntimeError: the model is in training mode.
        """
        if self.training:
            raise RuntimeError(
                "training=True: an expert drops tokens in training; call eval() before asking for routes"
            )
        logits, routings = self._run(tokens)
        return logits, [routing.experts for routing in routings]

    def forward_with_shares(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logits (n, T, V), and per Switch layer each expert's share of each token (n, T, E): 1 or 0.

        Raises:
            RuntimeError: the model is in training mode.
        """
        logits, routes = self.forward_with_routes(tokens)
        return logits, [F.one_hot(route, self.experts) for route in routes]

    def _run(self, tokens: Tensor) -> tuple[Tensor, list[Routing]]:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"tokens of shape {tuple(tokens.shape)}, {tokens.dtype}: give (n, T) token numbers, int32 or int64"
            )
        if tokens.shape[1] > self.size.context:
            raise ValueError(
                f"tokens of length {tokens.shape[1]}: the context is {self.size.context} tokens; cut the sequences, or "
                "build the model with a larger context"
            )
        x = F.embedding(tokens, self.embedding) + self.positions[: tokens.shape[1]]  # (n, T, d)
        x = self.dropout(x)
        routings = []
        for block in self.blocks:
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x, routing = checkpoint(block, x, use_reentrant=False)
            else:
                x, routing = block(x)
            if routing is not None:
                routings.append(routing)
        return F.linear(self.norm(x), self.embedding), routings  # (n, T, V)


class Block(nn.Module):
    """A layer of the transformer: attention, then a feed-forward network or a Switch layer, each beside a residual."""

    def __init__(self, size: SwitchSize, feed_forward: FeedForward | SwitchLayer, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(size.width)
        self.attention = Attention(size)
        self.feed_forward_norm = nn.LayerNorm(size.width)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Routing | None]:
        """(n, T, d) -> (n, T, d), and how a Switch layer routed."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        branch, routing = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(branch), routing


class Attention(nn.Module):
    """Causal self-attention of several heads, without dropout of its own: (n, T, d) -> (n, T, d)."""

    def __init__(self, size: SwitchSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.inputs = _linear(size.width, 3 * size.width)  # queries, keys, values
        self.output = _linear(size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, T, d) -> (n, T, d); a token sees itself and those before it."""
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
        """(n, T, d) -> (n, T, d); there is nothing to route."""
        return self.outer(F.gelu(self.inner(x))), None


class SwitchLayer(nn.Module):
    """A feed-forward network chosen for each token among E experts (Fedus et al., section 2).

    p = softmax(W_r x);   i = argmax p (tie: the lowest);   y = p_i · FFN_i(x)

    In training an expert takes tokens, in their order over the whole micro-batch, up to its capacity; the others are
    dropped: y = 0. An expert is one matrix product per linear layer over exactly its tokens, no padding. A single
    expert drops nothing, p = 1: it is the plain feed-forward network, beside a router that decides nothing.

    Attributes:
        router: W_r (E, d).
        inner_weight, inner_bias, outer_weight, outer_bias: of the experts, (E, 4 d, d), (E, 4 d), (E, d, 4 d), (E, d).
        splits: the expert that each growth copied. The copies stand behind the initial experts.
        draw: the model's scheme of initial weights, for experts that are added untrained.
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
        """E."""
        return len(self.router)

    def capacity(self, tokens: int) -> int:
        """Tokens that an expert takes in training out of a micro-batch of so many: ceil(N / E · capacity_factor)."""
        # Exact in the decimals that were written: as a float, 100 / 10 · 1.1 is above 11.
        return tokens if self.experts == 1 else math.ceil(Fraction(str(self.capacity_factor)) * tokens / self.experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Routing]:
        """(n, T, d) -> (n, T, d), and how it routed."""
        tokens = x.flatten(0, 1)  # (N, d)
        probabilities = self.probabilities(tokens)  # (N, E)
        share, chosen = probabilities.max(1)  # (N,) each; of equals the first
        if self.splits:
            chosen = self._first_alike()[chosen]
            share = probabilities.gather(1, chosen.unsqueeze(1)).squeeze(1)
        routed = chosen.unsqueeze(1) == torch.arange(self.experts, device=x.device)  # (N, E)
        fraction = routed.to(probabilities.dtype).mean(0)  # f (E,), which has no gradient
        balance = self.experts * (fraction * probabilities.mean(0)).sum()
        output = self._dispatch(tokens, chosen, routed.sum(0))  # (N, d)
        output = share.to(output.dtype).unsqueeze(1) * output
        return output.view(x.shape), Routing(balance, chosen.view(x.shape[:2]))

    def _first_alike(self) -> Tensor:
        """Of each expert the first with an equal row of the router (E,), whose products may be rounded apart."""
        rows = self.router.detach()
        return (rows.unsqueeze(1) == rows).all(-1).int().argmax(1)

    def probabilities(self, tokens: Tensor) -> Tensor:
        """p (N, E) of tokens (N, d), in float32 at the least: bfloat16 has too few digits to compare experts."""
        precision = torch.promote_types(tokens.dtype, torch.float32)
        tokens = tokens.to(precision)
        if self.training and self.jitter:
            tokens = tokens * torch.empty_like(tokens).uniform_(1 - self.jitter, 1 + self.jitter)
        with torch.autocast(tokens.device.type, enabled=False):
            return F.linear(tokens, self.router.to(precision)).softmax(1)

    def _dispatch(self, tokens: Tensor, chosen: Tensor, sizes: Tensor) -> Tensor:
        """FFN_i of each token (N, d), 0 where it is dropped. `sizes` (E,): the tokens that chose each expert."""
        order = chosen.argsort(stable=True)  # by expert, those of one expert in the order of the tokens
        queues = torch.split(order, sizes.tolist())
        if self.training and (capacity := self.capacity(len(tokens))) < len(tokens):
            queues = tuple(queue[:capacity] for queue in queues)
            order = torch.cat(queues)
            meter.cost_varies_with(len(order))  # what is dropped costs nothing
        # Taking the stacks apart at once has a stack as its gradient; one by one, each expert would fill a whole one.
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
        """E: the experts are what the leaves of a tree of experts are."""
        return self.experts

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Append a copy of expert `leaf` and of its row of the router (ALMA paper, section 4, gMoE on text).

        No token changes its expert: a copy has its original's logit, and of equals the first is taken, so that a copy
        gets no token until the balance loss, or the noise, has told the two apart. The function changes none the less:
        p_i becomes p_i / (1 + p_copied).
        """
        if not 0 <= leaf < self.experts:
            raise ValueError(f"leaf={leaf}: the layer has experts 0 to {self.experts - 1}; choose one of them")
        copies = {name: stack.detach()[leaf : leaf + 1] for name, stack in self.named_parameters(recurse=False)}
        if self.copy_noise:
            row = copies["router"]
            draws = torch.randn(row.shape, generator=generator).to(row)
            copies["router"] = row + self.copy_noise * row.std(1, keepdim=True) * draws
        self._append(leaf, copies)

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Add untrained experts until there are as many as after `splits`.

        Raises:
            ValueError: the layer has already grown otherwise.
        """
        if splits[: len(self.splits)] != self.splits:
            raise ValueError(
                f"splits={splits}: the layer has been split at {self.splits} already; begin with a new one"
            )
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
    """A linear layer whose weights are yet to be drawn; the library would draw them from the global generator."""
    device = torch.get_default_device()  # also within `with torch.device("meta"):`
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, device=device)  # type: ignore[no-untyped-call]
    return layer


def _draw(name: str, parameter: Tensor, generator: torch.Generator, *, init: Init, layers: int) -> None:
    """Initial weights, in place, on the device that the generator draws for."""
    with torch.no_grad():
        if name.endswith("bias"):
            parameter.zero_()
        elif init == "switch":
            std = math.sqrt(0.1 / parameter.shape[-1])
            nn.init.trunc_normal_(parameter, 0, std, -2 * std, 2 * std, generator=generator)
        else:
            to_residual = name.endswith(("output.weight", "outer.weight", "outer_weight"))
            nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if to_residual else 0.02, generator=generator)
