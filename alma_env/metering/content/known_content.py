"""Known content: whether the meter can explain the content of a storage, and why it is foreign if not.

Explained are the contents that earlier blocks left, data that the environment handed out, constants, a few numbers, and
the initial weights of a network that no unseen training can have changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from alma_env.metering.content.backward_passes import passes
from alma_env.metering.content.records import Records
from alma_env.metering.content.released_data import ReleasedData
from alma_env.metering.content.storages import checksum, sample
from alma_env.metering.content.touched import FEW, Touched, as_bytes, float_type, is_constant, is_parameter, values_of

CHANGED = "changed while the meter was not running"
UNKNOWN = "has numbers from a file, an array or a process that the meter does not know"
UNSEEN = "may have been trained while the meter was not running"
UNCHARGED = "was touched without a charge for the work"


class KnownContent:
    """What the meter knows before a block looks at a storage."""

    def __init__(self) -> None:
        self.records = Records()
        self.data = ReleasedData()
        self.explained = False  # work was declared: until `taken`, nothing is foreign
        self._unseen = passes().unseen()

    def judge(self, key: int, tensor: Tensor, touched: Touched, *, changed: bool = False, lifted: bool = False) -> None:
        """Note what is known of the present content of a storage that the running block is about to read.

        Args:
            key: the `storage_id` of the storage.
            tensor: a tensor in it.
            touched: where to note it.
            changed: the content changed between two operations of the block.
            lifted: the block made it PyTorch's, with any content.
        """
        storage = tensor.untyped_storage()
        content = touched.content = checksum(storage)
        touched.sample = sample(tensor)
        touched.foreign, touched.made = "", True
        known = self.records.of_content(content)
        if known is not None:
            touched.foreign, touched.made, touched.data = known.foreign, known.written, known.data
            if not known.foreign:
                return
        elif self.records.was_known(content):
            touched.made = False
            return
        values = values_of(storage, tensor.dtype)
        if is_constant(values):
            if not tensor.is_floating_point() and self.data.recognises(values.view(np.uint8), None):
                touched.released = touched.data = True  # a label by itself
                return
            touched.numbers = int(bool(len(values)) and float(abs(values[0])) not in (0.0, 1.0))
            return
        if self.data.recognises(values.view(np.uint8), float_type(tensor.dtype)):
            touched.released = touched.data = True
            return
        if not touched.foreign:
            touched.foreign = self._foreign(key, tensor, values, touched, changed, lifted)
        if self.explained:
            touched.foreign = ""

    def are_labels(self, tensor: Tensor) -> bool:
        """Return whether a tensor holds labels that the environment handed out, also joined ones."""
        if tensor.dim() != 1 or tensor.is_floating_point():
            return False
        return self.data.recognises(values_of(tensor.untyped_storage(), tensor.dtype).view(np.uint8), None)

    def _foreign(self, key: int, tensor: Tensor, values: Any, touched: Touched, changed: bool, lifted: bool) -> str:
        """Return why content that the meter does not know is foreign, or "" if it may be an initialisation."""
        parameter = is_parameter(tensor)
        if len(values) <= FEW and not parameter:
            touched.numbers = len(values)
            return ""
        if changed or self.records.has_storage(key):
            return CHANGED
        touched.made = False
        # Initial weights are random numbers in memory of PyTorch. If there was a training that no meter saw, they may
        # be its result.
        if parameter and not lifted and tensor.untyped_storage().resizable():
            return UNSEEN if self._trained_unseen() else ""
        return UNKNOWN

    def _trained_unseen(self) -> bool:
        try:
            return passes().unseen() > self._unseen
        except RuntimeError:  # inside of a transform, where no backward pass can run
            return False

    def last_look(self, storage: torch.UntypedStorage, one: Touched) -> int:
        """Return the checksum of a storage at the end of a block; content that changed unseen becomes foreign."""
        content = checksum(storage)
        if one.sample is not None and sample(as_bytes(storage)) != one.sample and not self.explained:
            known = self.records.of_content(content) is not None or self.records.was_known(content)
            one.foreign = one.foreign or ("" if known else CHANGED)
        return content
