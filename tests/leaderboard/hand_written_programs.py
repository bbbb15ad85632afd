"""Programs written by hand, as a cheater writes them, without `torch.export`."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save


def of(name):
    return {"of": name}


FLAT = [
    ["flat", "aten.flatten.using_ints", [of("x"), 1], {}],
    ["real", "aten._to_copy.default", [of("flat")], {"dtype": {"dtype": "float32"}}],
]


LINEAR = [*FLAT, ["logits", "aten.mm.default", [of("real"), of("w")], {}]]


def program(nodes=LINEAR, tensors=None, kinds=None, output="logits"):
    """Return the bytes of a program that was written by hand, without `torch.export`."""
    tensors = {"w": torch.eye(64)[:, :10].contiguous()} if tensors is None else tensors
    kinds = dict.fromkeys(tensors, "parameter") if kinds is None else kinds
    graph = {"version": 1, "input": "x", "tensors": kinds, "aliases": {}, "nodes": nodes, "output": output}
    return json.dumps(graph).encode(), save(tensors)
