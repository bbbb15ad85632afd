"""Random crop and horizontal flip of whole mini-batches, on raw images and on any device.

This is the CIFAR-10 recipe of the ALMA paper: an image is padded by 4 black pixels on each side, cropped to its size at
a random position, and mirrored with probability 1/2. Each image has its own random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """Random crops and flips: `top` and `left` in 0..2·padding, uint8 (...), and `mirror`, bool (...)."""

    top: Tensor
    left: Tensor
    mirror: Tensor

    def to(self, device: torch.device) -> CropFlip:
        """Return the same crops and flips on another device."""
        return CropFlip(self.top.to(device), self.left.to(device), self.mirror.to(device))

    def flatten(self) -> CropFlip:
        """Return the same crops and flips with one dimension."""
        return CropFlip(self.top.flatten(), self.left.flatten(), self.mirror.flatten())

    def __getitem__(self, part: int | slice | Tensor) -> CropFlip:
        """Return the crops and flips of some of the images."""
        return CropFlip(self.top[part], self.left[part], self.mirror[part])


class PaddedImages:
    """Images (n, C, H, W) in memory with their black border. One indexing operation cuts all crops."""

    def __init__(self, images: Tensor, padding: int) -> None:
        if images.dim() != 4:
            raise ValueError(
                f"input of shape {tuple(images.shape)}: augmentation='crop_flip' needs images (n, C, H, W); "
                "use augmentation='none'"
            )
        height, width = images.shape[2:]
        self.padding = padding
        bordered = F.pad(images, (padding, padding, padding, padding))  # (n, C, H + 2p, W + 2p)
        self._crops = bordered.unfold(2, height, 1).unfold(3, width, 1)  # a view: (n, C, 2p + 1, 2p + 1, H, W)

    def crop_flip(self, index: Tensor, flips: CropFlip) -> Tensor:
        """Return the images of `index` (int64, (b,)), each cropped and flipped: (b, C, H, W)."""
        crops = self._crops[index, :, flips.top.long(), flips.left.long()]  # (b, C, H, W)
        return torch.where(flips.mirror[:, None, None, None], crops.flip(-1), crops)


def draw_crop_flip(shape: tuple[int, ...], padding: int, generator: torch.Generator) -> CropFlip:
    """Draw crops and flips on the CPU: positions uniform on 0..2·padding, `mirror` True with probability 1/2."""
    top, left = torch.randint(2 * padding + 1, (2, *shape), dtype=torch.uint8, generator=generator)
    mirror = torch.randint(2, shape, dtype=torch.uint8, generator=generator).bool()
    return CropFlip(top, left, mirror)
