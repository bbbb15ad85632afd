"""Digests of tensors tell which scalars are new."""

from __future__ import annotations

import torch
from safetensors.torch import save

from leaderboard.verification.tensor_digests import BLOCK_BYTES, changed_scalars, tensor_digests


def test_only_the_blocks_that_differ_are_counted_and_a_new_tensor_counts_as_a_whole():
    first = {"a": torch.zeros(10_000), "b": torch.zeros(3, 4)}
    before = tensor_digests(save(first))
    assert changed_scalars(before, tensor_digests(bytearray(save(first)))) == 0
    one = {"a": first["a"].clone(), "b": first["b"]}
    one["a"][5000] = 1
    assert 1 <= changed_scalars(before, tensor_digests(save(one))) <= BLOCK_BYTES // 4
    assert changed_scalars(before, tensor_digests(save({**one, "b": torch.ones(3, 4)}))) <= BLOCK_BYTES // 4 + 12
    assert changed_scalars(before, tensor_digests(save({**first, "c": torch.zeros(7)}))) == 7
    assert changed_scalars(before, tensor_digests(save({**first, "b": torch.zeros(12)}))) == 12
    assert changed_scalars(before, tensor_digests(save({**first, "b": torch.zeros(3, 4, dtype=torch.int32)}))) == 12
    assert changed_scalars({}, before) == 10_012


def test_tensors_without_elements_are_never_changed():
    empty = tensor_digests(save({"a": torch.zeros(0, 5)}))
    assert changed_scalars({}, empty) == changed_scalars(empty, empty) == 0
