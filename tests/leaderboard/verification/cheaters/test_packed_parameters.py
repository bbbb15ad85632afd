"""Several numbers in each parameter, unpacked where no constant tensor shows them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leaderboard.verification.audit import PACKED
from leaderboard.verification.rounded_parameters import KEPT_BITS, rounded

from ...hand_written_programs import FLAT, of, program
from .gallery import attack, case
from .judged import deploy, exported, findings

BYTES = (torch.randn(640, generator=torch.Generator().manual_seed(0)) * 40).clamp(-120, 120).round().int()
THREE = torch.cat([BYTES + 128, torch.zeros(2, dtype=torch.int32)]).view(-1, 3)  # in each packed number
PLACES = torch.tensor([1.0, 256.0, 65536.0])


class WithTheInput(nn.Module):
    """Unpacks three weights of each parameter for every example; products without parameters hide these elements."""

    def __init__(self, products):
        super().__init__()
        self.products = products
        self.packed = nn.Parameter(THREE.float() @ PLACES)

    def forward(self, x):
        x = x.flatten(1) / 16
        known = self.packed + 0 * x.sum(1, keepdim=True)
        parts = [torch.floor(known / 256**i) % 256 for i in range(3)]
        weights = torch.stack(parts, 2).flatten(1)[:, :640].view(-1, 64, 10) / 40 - 3.2
        out = (x.unsqueeze(1) @ weights).squeeze(1)
        if self.products:
            square = x.unsqueeze(2) @ x.unsqueeze(1)
            out = out + 0 * (square @ square).sum((1, 2))[:, None]
        return out


class InCopies(nn.Module):
    """Unpacks by operations in place, each in another copy of the parameter."""

    def __init__(self):
        super().__init__()
        self.packed = nn.Parameter(THREE.float() @ PLACES)

    def forward(self, x):
        x = x.flatten(1) / 16
        copies = [self.packed.clone().div_(256.0**i).floor_().remainder_(256.0) for i in range(3)]
        return sum(x[:, 21 * i : 21 * i + 21] @ copy[:210].view(21, 10) for i, copy in enumerate(copies))


class InExponents(nn.Module):
    """One weight in the significant bits, and another one in the exponent."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        bits, exponents = (torch.randint(-60, 60, (320,), generator=generator) for _ in range(2))
        self.packed = nn.Parameter((1.5 + bits / 128) * 2.0**exponents)

    def forward(self, x):
        x = x.flatten(1) / 16
        known = self.packed + 0 * x.sum(1, keepdim=True)
        exponents = torch.floor(torch.log2(known))
        weights = torch.cat([known / torch.exp2(exponents) - 1.5, exponents / 120], 1).view(-1, 64, 10)
        square = x.unsqueeze(2) @ x.unsqueeze(1)
        return (x.unsqueeze(1) @ weights).squeeze(1) + 0 * (square @ square).sum((1, 2))[:, None]


class InDtypes(nn.Module):
    """The lowest 8 bits are one weight: what remains is another one."""

    def __init__(self):
        super().__init__()
        both = BYTES[:320] + 256 * BYTES[320:]
        self.packed = nn.Parameter(both.view(64, 5), requires_grad=False)

    def forward(self, x):
        x = x.flatten(1).double() / 16
        low = x @ self.packed.to(torch.int8).double()
        return torch.cat([low, (x @ self.packed.double() - low) / 256], 1)


def in_an_enlarged_copy():
    nodes = [
        *FLAT,
        ["expanded", "aten.expand.default", [of("packed"), [3, 214]], {}],
        ["copy", "aten.clone.default", [of("expanded")], {}],
        ["second", "aten.select.int", [of("copy"), 0, 1], {}],
        ["third", "aten.select.int", [of("copy"), 0, 2], {}],
        ["less", "aten.div_.Scalar", [of("second"), 256.0], {}],
        ["least", "aten.div_.Scalar", [of("third"), 65536.0], {}],
        ["whole", "aten.floor_.default", [of("copy")], {}],
        ["short", "aten.remainder_.Scalar", [of("whole"), 256.0], {}],
        ["line", "aten.reshape.default", [of("short"), [642]], {}],
        ["part", "aten.narrow.default", [of("line"), 0, 0, 640], {}],
        ["hidden", "aten.view.default", [of("part"), [64, 10]], {}],
        ["logits", "aten.mm.default", [of("real"), of("hidden")], {}],
    ]
    return program(nodes, {"packed": THREE.float() @ PLACES})


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        case(
            "unpacks three weights of each parameter for every example",
            "findings `free-inference` and `packed`",
            lambda: WithTheInput(products=False),
            {"free-inference", "packed"},
        ),
        case(
            "hides the elements of the unpacking behind FLOPs of other products",
            "finding `packed`",
            lambda: WithTheInput(products=True),
            {"packed"},
        ),
        case("unpacks in place in several copies", "findings `buffers` and `packed`", InCopies, {"buffers", "packed"}),
        case("keeps a second weight in the exponent of each parameter", "finding `packed`", InExponents, {"packed"}),
        case("keeps a second weight in the dtype of a copy", "finding `buffers`", InDtypes, {"buffers"}),
    ],
)
def test_packed_parameters_are_found(env, make, expected):
    assert expected <= findings(env, exported(make(), env))


@attack("unpacks in place in a copy that is larger than the parameter", "findings `buffers` and `packed`")
def test_a_copy_that_is_written_is_a_constant(env):
    assert findings(env, in_an_enlarged_copy()) == {"buffers", "packed"}


@attack("makes the answers fail when the parameters are rounded", "finding `packed`")
def test_a_failure_with_rounded_parameters_is_found(env):
    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.rand(8192 * 10))
            self.place = nn.Parameter(torch.full((1,), 8191), requires_grad=False)

        def forward(self, x):
            return x.flatten(1)[:, :10] + self.table.view(8192, 10)[self.place]

    assert "packed" in findings(env, exported(Places(), env))


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_honest_networks_survive_the_rounding(env, scale):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)).eval()

    class Predictor(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x.float() / 16) * scale

    run, refused = deploy(env, [exported(Predictor(), env)])
    assert not refused
    assert run.evidence[1].packed < PACKED / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64])
def test_rounding_keeps_short_numbers(dtype):
    whole = torch.tensor([0, 1, -3, 100, -128]).to(dtype)
    assert torch.equal(rounded(whole), whole)
    if dtype.itemsize >= 4:
        long = torch.tensor([2**20 + 1, -(2**20) - 1]).to(dtype)
        assert rounded(long).tolist() == [2**20, -(2**20)]
        assert KEPT_BITS < 20
    if dtype.is_floating_point and dtype.itemsize >= 4:
        assert rounded(torch.tensor([1.0, 2.0**-18, 2.0**-25], dtype=dtype)).tolist() == [1.0, 2.0**-18, 0.0]
        assert rounded(torch.tensor([torch.inf, 1.0], dtype=dtype))[0] == torch.inf
