from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from alma_env import metering

from ..random_examples import seeded

MLP_COUNTS = {4: (3_210, 3_192), 8: (6_442, 6_416), 16: (13_002, 12_960), 32: (26_506, 26_432), 64: (55_050, 54_912)}
VGG19_COUNTS = {
    4: (2_510, 380_200),
    8: (9_330, 1_299_536),
    16: (35_930, 4_755_616),
    32: (140_970, 18_137_408),
    64: (558_410, 70_779_520),
}


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def multiply_adds(network: nn.Module, *shape: int) -> int:
    with torch.no_grad():
        charge = metering.count(network.eval(), torch.zeros(1, *shape))
    return charge.total // 2


@pytest.mark.parametrize("width", MLP_COUNTS)
def test_the_mlp_has_the_parameters_and_multiply_adds_of_the_paper(width: int) -> None:
    network = MLP(784, width, 10, generator=seeded())
    assert (parameters(network), multiply_adds(network, 1, 28, 28)) == MLP_COUNTS[width]
    assert MLP_COUNTS[width] == (width**2 + 796 * width + 10, 784 * width + width**2 + 10 * width)


@pytest.mark.parametrize("width", VGG19_COUNTS)
def test_vgg19_has_the_parameters_and_multiply_adds_of_the_paper(width: int) -> None:
    network = VGG19(width, 10, generator=seeded())
    assert (parameters(network), multiply_adds(network, 3, 32, 32)) == VGG19_COUNTS[width]
    assert VGG19_COUNTS[width] == (135 * width**2 + 85 * width + 10, 16_848 * width**2 + 27_658 * width)


def test_the_initialisation_is_the_default_of_pytorch_drawn_from_the_generator() -> None:
    before = torch.get_rng_state()
    ours = MLP(784, 8, 10, generator=seeded(3))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        library = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10)
        )
        torch.manual_seed(3)
        first_convolution = nn.Conv2d(3, 8, 3, padding=1)
    for name, tensor in library.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor)
    assert torch.equal(VGG19(8, 10, generator=seeded(3)).features[0].weight, first_convolution.weight)


def test_normalisation_follows_the_formula_per_channel() -> None:
    x = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8, generator=seeded())
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (x.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    normalised = Normalize(255, mean, std)(x)
    assert normalised.dtype == torch.float32
    torch.testing.assert_close(normalised.double(), expected, rtol=1e-5, atol=1e-6)


def test_one_mean_and_standard_deviation_apply_to_all_features() -> None:
    x = torch.randn(5, 7, generator=seeded())
    torch.testing.assert_close(Normalize(1, (0.5,), (2.0,))(x), (x - 0.5) / 2)


@pytest.mark.parametrize(("backbone", "shape"), [("mlp", (1, 28, 28)), ("vgg19", (3, 32, 32))])
def test_a_copied_pickled_or_exported_predictor_gives_the_same_logits(backbone: str, shape: tuple[int, ...]) -> None:
    body = MLP(784, 4, 10, generator=seeded()) if backbone == "mlp" else VGG19(4, 10, generator=seeded())
    predictor = Predictor(Normalize(255, (0.5,), (0.25,)), body).eval()
    x = torch.randint(0, 256, (6, *shape), dtype=torch.uint8, generator=seeded())
    with torch.no_grad():
        logits = predictor(x)
        assert logits.shape == (6, 10)
        assert torch.equal(copy.deepcopy(predictor)(x), logits)
        assert torch.equal(pickle.loads(pickle.dumps(predictor))(x), logits)
        batch = torch.export.Dim("batch", min=2, max=4096)
        exported = torch.export.export(predictor, (x,), dynamic_shapes=({0: batch},)).module()
        torch.testing.assert_close(exported(x[:3]), logits[:3])


@pytest.mark.parametrize("shape", [(2, 3, 28, 28), (2, 3, 8, 8), (2, 3, 64, 64), (2, 3072)])
def test_vgg19_with_images_that_it_cannot_reduce_to_one_pixel_raises(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="input of shape.*32 to 63 pixels.*pad or resize"):
        VGG19(4, 10, generator=seeded())(torch.zeros(shape))


def test_a_size_below_one_raises() -> None:
    with pytest.raises(ValueError, match="hidden=0.*at least 1"):
        MLP(784, 0, 10, generator=seeded())
    with pytest.raises(ValueError, match="width=-1.*at least 1"):
        VGG19(-1, 10, generator=seeded())


def test_a_normalisation_with_wrong_values_raises() -> None:
    with pytest.raises(ValueError, match=r"std=\(0.0,\).*above 0"):
        Normalize(255, (0.5,), (0.0,))
    with pytest.raises(ValueError, match=r"mean=\(0.5, 0.5\).*per channel"):
        Normalize(255, (0.5, 0.5), (1.0,))
