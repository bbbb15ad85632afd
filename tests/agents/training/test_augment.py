from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from agents.training.augment import PaddedImages, draw_crop_flip


def images(n: int, size: int = 6) -> torch.Tensor:
    return torch.randint(1, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_batch_equals_crops_and_flips_of_single_images() -> None:
    x, index = images(20), torch.tensor([7, 3, 19, 3, 0, 11, 12, 1])
    flips = draw_crop_flip((8,), 2, torch.Generator().manual_seed(1))
    assert flips.mirror.any()
    assert not flips.mirror.all()
    batch = PaddedImages(x, 2).crop_flip(index, flips)
    assert batch.dtype == torch.uint8
    for row, which in enumerate(index):
        top, left = int(flips.top[row]), int(flips.left[row])
        crop = F.pad(x[which], (2, 2, 2, 2))[:, top : top + 6, left : left + 6]
        assert torch.equal(batch[row], crop.flip(-1) if flips.mirror[row] else crop)


def test_the_border_is_black_raw_pixels() -> None:
    flips = draw_crop_flip((1,), 2, torch.Generator().manual_seed(1))
    flips.top[:], flips.left[:], flips.mirror[:] = 0, 0, False
    batch = PaddedImages(images(1), 2).crop_flip(torch.tensor([0]), flips)
    assert (batch[..., :2, :] == 0).all()
    assert (batch[..., :, :2] == 0).all()
    assert (batch[..., 2:, 2:] > 0).all()


def test_positions_are_uniform_and_half_of_the_images_are_flipped() -> None:
    flips = draw_crop_flip((90_000,), 4, torch.Generator().manual_seed(2))
    positions = torch.bincount(flips.top.long() * 9 + flips.left.long(), minlength=81).float()
    assert len(positions) == 81
    assert (positions / 90_000 * 81 - 1).abs().max() < 0.15  # 5 standard deviations
    assert abs(flips.mirror.float().mean() - 0.5) < 0.01


def test_random_numbers_come_from_the_generator_only() -> None:
    before = torch.get_rng_state()
    first, second = (draw_crop_flip((3, 50), 4, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.top, second.top)
    assert torch.equal(first.left, second.left)
    assert torch.equal(first.mirror, second.mirror)


def test_without_padding_images_are_only_flipped() -> None:
    x = images(4)
    flips = draw_crop_flip((4,), 0, torch.Generator().manual_seed(1))
    batch = PaddedImages(x, 0).crop_flip(torch.arange(4), flips)
    assert torch.equal(torch.where(flips.mirror[:, None, None, None], batch.flip(-1), batch), x)


def test_inputs_that_are_not_images_raise() -> None:
    with pytest.raises(ValueError, match=r"shape \(4, 64\).*images.*augmentation='none'"):
        PaddedImages(torch.zeros(4, 64), 4)
