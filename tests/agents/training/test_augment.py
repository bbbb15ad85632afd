from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from agents.augment import PaddedImages, draw_crop_flip


def images(n: int, size: int = 6) -> torch.Tensor:
    return torch.randint(1, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_batch_equals_cutting_and_mirroring_image_by_image() -> None:
    x, index = images(20), torch.tensor([7, 3, 19, 3, 0, 11, 12, 1])
    draws = draw_crop_flip((8,), 2, torch.Generator().manual_seed(1))
    assert draws.mirror.any()
    assert not draws.mirror.all()
    batch = PaddedImages(x, 2).crop_flip(index, draws)
    assert batch.dtype == torch.uint8
    for row, which in enumerate(index):
        top, left = int(draws.top[row]), int(draws.left[row])
        crop = F.pad(x[which], (2, 2, 2, 2))[:, top : top + 6, left : left + 6]
        assert torch.equal(batch[row], crop.flip(-1) if draws.mirror[row] else crop)


def test_the_border_is_black_raw_pixels() -> None:
    draws = draw_crop_flip((1,), 2, torch.Generator().manual_seed(1))
    draws.top[:], draws.left[:], draws.mirror[:] = 0, 0, False
    batch = PaddedImages(images(1), 2).crop_flip(torch.tensor([0]), draws)
    assert (batch[..., :2, :] == 0).all()
    assert (batch[..., :, :2] == 0).all()
    assert (batch[..., 2:, 2:] > 0).all()


def test_every_place_is_equally_likely_and_half_are_mirrored() -> None:
    draws = draw_crop_flip((90_000,), 4, torch.Generator().manual_seed(2))
    places = torch.bincount(draws.top.long() * 9 + draws.left.long(), minlength=81).float()
    assert len(places) == 81
    assert (places / 90_000 * 81 - 1).abs().max() < 0.15  # 5 standard deviations
    assert abs(draws.mirror.float().mean() - 0.5) < 0.01


def test_draws_come_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = (draw_crop_flip((3, 50), 4, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.top, second.top)
    assert torch.equal(first.left, second.left)
    assert torch.equal(first.mirror, second.mirror)


def test_without_padding_only_mirroring_is_left() -> None:
    x = images(4)
    draws = draw_crop_flip((4,), 0, torch.Generator().manual_seed(1))
    batch = PaddedImages(x, 0).crop_flip(torch.arange(4), draws)
    assert torch.equal(torch.where(draws.mirror[:, None, None, None], batch.flip(-1), batch), x)


def test_anything_but_images_is_refused() -> None:
    with pytest.raises(ValueError, match="crop and flip need images"):
        PaddedImages(torch.zeros(4, 64), 4)
