"""Random crop and horizontal flip of whole mini-batches, on raw images and on any device.

The CIFAR-10 recipe of the ALMA paper: an image is padded by 4 black pixels on each side, cropped back to its size at a
random place, and mirrored with probability 1/2. Every image is drawn for separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """The draws for some images: `top` and `left` in 0..2·padding as uint8 (..., n), `mirror` as bool (..., n)."""

    top: Tensor
    left: Tensor
    mirror: Tensor

    def to(self, device: torch.device) -> CropFlip:
        """The same draws on another device."""
        return CropFlip(self.top.to(device), self.left.to(device), self.mirror.to(device))

    def __getitem__(self, part: int | slice | tuple[Any, ...]) -> CropFlip:
        """The draws of some of the images."""
        return CropFlip(self.top[part], self.left[part], self.mirror[part])

    @classmethod
    def stack(cls, draws: Sequence[CropFlip]) -> CropFlip:
        """Draws of one shape, with a new first dimension."""
        return cls(*(torch.stack([getattr(d, name) for d in draws]) for name in ("top", "left", "mirror")))


class PaddedImages:
    """Images (n, C, H, W) in memory with their black border, from which crops are cut by one indexing operation."""

    def __init__(self, images: Tensor, padding: int) -> None:
        if images.dim() != 4:
            raise ValueError(f"input of shape {tuple(images.shape)}: crop and flip need images (n, C, H, W)")
        height, width = images.shape[2:]
        self.padding = padding
        bordered = F.pad(images, (padding, padding, padding, padding))  # (n, C, H + 2p, W + 2p)
        self._crops = bordered.unfold(2, height, 1).unfold(3, width, 1)  # a view: (n, C, 2p + 1, 2p + 1, H, W)

    def crop_flip(self, index: Tensor, draws: CropFlip) -> Tensor:
        """The images of `index` (int64, (..., b)), each cut and mirrored by its own draw: (..., b, C, H, W)."""
        crops = self._crops[index, :, draws.top.long(), draws.left.long()]  # (..., b, C, H, W)
        return torch.where(draws.mirror[..., None, None, None], crops.flip(-1), crops)


def draw_crop_flip(shape: tuple[int, ...], padding: int, generator: torch.Generator) -> CropFlip:
    """Independent draws of the given shape, on the CPU: places uniform on 0..2·padding, mirrored half of the time."""
    top, left = torch.randint(2 * padding + 1, (2, *shape), dtype=torch.uint8, generator=generator)
    mirror = torch.randint(2, shape, dtype=torch.uint8, generator=generator).bool()
    return CropFlip(top, left, mirror)
