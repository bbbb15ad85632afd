from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.data_order import draw_orders
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, StageReport, train_stage
from agents.training.step import validate
from alma_env.metering import Meter

from ..random_examples import equal, examples, seeded

SETTINGS = StageSettings(epochs=4, batch_size=16, optimizer="sgd", learning_rate=0.1)


def small_mlp() -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), MLP(64, 8, 10, generator=seeded()))


def small_vgg19() -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), VGG19(2, 10, generator=seeded()))


def run(
    predictor: Predictor, settings: StageSettings, train: Examples | None = None, valid: Examples | None = None
) -> StageReport:
    return train_stage(
        predictor,
        examples(40) if train is None else train,
        examples(9, seed=5) if valid is None else valid,
        settings,
        StageGenerators(seeded(1), seeded(2)),
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adadelta"])
def test_a_stage_equals_a_loop_written_by_hand(optimizer: str) -> None:
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer, weight_decay=1e-3)
    predictor, train, valid = small_mlp(), examples(40), examples(9, seed=5)
    by_hand = copy.deepcopy(predictor)
    report = run(predictor, settings)

    if optimizer == "sgd":
        steps = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    else:
        steps = torch.optim.Adadelta(by_hand.parameters(), lr=0.1, weight_decay=1e-3)
    order, losses, states = seeded(1), [], []
    for _ in range(4):
        for index in torch.randperm(40, generator=order).split(16):  # 16, 16, 8: the last smaller batch is kept
            steps.zero_grad()
            F.cross_entropy(by_hand(train.x[index]), train.y[index]).backward()
            steps.step()
        with torch.no_grad():
            losses.append(F.cross_entropy(by_hand(valid.x), valid.y).item())
        states.append(copy.deepcopy(by_hand.state_dict()))
    best = min(range(4), key=losses.__getitem__)
    assert report.validation_loss == pytest.approx(losses, rel=1e-6)
    assert report.best_epoch == best + 1
    assert len(report.validation_loss) == 4
    assert all(torch.equal(predictor.state_dict()[name], states[best][name]) for name in states[best])
    assert not predictor.body.training


def test_the_batchnorm_buffers_of_the_best_epoch_are_kept_with_its_weights() -> None:
    settings = StageSettings(epochs=3, batch_size=8, learning_rate=0.5, select="val_error")
    train, valid = examples(20, (3, 32, 32)), examples(6, (3, 32, 32), seed=5)
    predictor = small_vgg19()
    report = run(predictor, settings, train, valid)
    assert predictor.body.features[1].num_batches_tracked == 3 * report.best_epoch
    again = small_vgg19()
    run(again, dataclasses.replace(settings, epochs=report.best_epoch), train, valid)
    assert equal(predictor, again)
    _, error = validate(predictor.body, predictor.normalize(valid.x), valid.y, 4)
    assert error.item() == pytest.approx(min(report.validation_error))


def test_among_equal_epochs_the_first_wins() -> None:
    # With this learning rate no prediction changes.
    report = run(small_mlp(), dataclasses.replace(SETTINGS, learning_rate=1e-9, select="val_error"))
    assert len(set(report.validation_error)) == 1
    assert report.best_epoch == 1


def test_min_delta_is_the_smallest_improvement() -> None:
    assert run(small_mlp(), dataclasses.replace(SETTINGS, learning_rate=1e-3, min_delta=10.0)).best_epoch == 1


def test_keep_initial_makes_the_weights_from_before_the_stage_a_candidate() -> None:
    predictor = small_mlp()
    before = copy.deepcopy(predictor)
    train = Examples(examples(40).x, torch.zeros(40, dtype=torch.int64))
    valid = Examples(examples(9).x, torch.ones(9, dtype=torch.int64))  # training can only increase the loss
    assert run(copy.deepcopy(predictor), SETTINGS, train, valid).best_epoch == 1
    report = run(predictor, dataclasses.replace(SETTINGS, keep_initial=True), train, valid)
    assert report.best_epoch == 0
    assert equal(predictor, before)
    loss, error = (float(score) for score in validate(before.body, before.normalize(valid.x), valid.y, 100))
    assert (report.best_loss, report.best_error) == pytest.approx((loss, error))  # of the kept weights
    assert report.best_loss < min(report.validation_loss)


def test_patience_ends_the_stage_with_the_same_weights_if_no_later_epoch_is_better() -> None:
    train = Examples(examples(40).x, torch.zeros(40, dtype=torch.int64))
    valid = Examples(examples(9).x, torch.ones(9, dtype=torch.int64))
    patient, impatient = small_mlp(), small_mlp()
    assert len(run(patient, dataclasses.replace(SETTINGS, epochs=8), train, valid).validation_loss) == 8
    assert len(run(impatient, dataclasses.replace(SETTINGS, epochs=8, patience=2), train, valid).validation_loss) == 3
    assert equal(patient, impatient)


def test_a_diverged_stage_keeps_the_weights_from_before_it_and_warns() -> None:
    predictor = small_mlp()
    before = copy.deepcopy(predictor)
    with pytest.warns(RuntimeWarning, match="lower the learning rate"):
        report = run(predictor, dataclasses.replace(SETTINGS, learning_rate=1e30))
    assert report.best_epoch == 0
    assert equal(predictor, before)


def test_patience_does_not_change_the_random_numbers_and_the_global_generator_is_not_used() -> None:
    before, states = torch.get_rng_state(), []
    for patience in (None, 1):
        order, augment = seeded(1), seeded(2)
        settings = dataclasses.replace(SETTINGS, patience=patience, augmentation="crop_flip", padding=2)
        train_stage(small_mlp(), examples(40), examples(9), settings, StageGenerators(order, augment))
        states.append((order.get_state(), augment.get_state()))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(states[0][0], states[1][0])
    assert torch.equal(states[0][1], states[1][1])


def test_orders_are_one_permutation_per_epoch() -> None:
    orders = draw_orders(50, 3, seeded())
    assert torch.equal(orders.sort(1).values, torch.arange(50).expand(3, 50))
    assert not torch.equal(orders[0], orders[1])


def test_validation_weights_examples_equally_over_unequal_batches() -> None:
    predictor, valid = small_mlp(), examples(9)
    x = predictor.normalize(valid.x)
    for batch_size in (1, 4, 9, 100):
        loss, error = validate(predictor.body, x, valid.y, batch_size)
        logits = predictor(valid.x)
        torch.testing.assert_close(loss, F.cross_entropy(logits, valid.y))
        torch.testing.assert_close(error, (logits.argmax(1) != valid.y).float().mean())


def test_on_epoch_is_called_after_every_epoch() -> None:
    calls: list[int] = []
    generators = StageGenerators(seeded(1), seeded(2))
    report = train_stage(small_mlp(), examples(40), examples(9), SETTINGS, generators, on_epoch=calls.append)
    assert calls == list(range(1, len(report.validation_loss) + 1))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_augmented_training_repeats_exactly(precision: str) -> None:
    settings = StageSettings(epochs=2, batch_size=8, augmentation="crop_flip", precision=precision)
    train, valid = examples(20, (3, 32, 32)), examples(6, (3, 32, 32), seed=5)
    first, second = small_vgg19(), small_vgg19()
    assert run(first, settings, train, valid) == run(second, settings, train, valid)
    assert equal(first, second)
    assert all(parameter.dtype == torch.float32 for parameter in first.parameters())


def test_charged_flops_equal_the_sum_by_hand() -> None:
    meter = Meter()
    with meter:
        run(small_mlp(), SETTINGS)
    multiply_adds = 64 * 8 + 8 * 8 + 8 * 10
    step = 3 * multiply_adds - 64 * 8  # the first layer needs no gradient with respect to its input
    charge = meter.take()
    assert charge.flops == {"training": 4 * 40 * 2 * step, "validation": 4 * 9 * 2 * multiply_adds}
    assert charge.forward["training"] == 4 * 40 * 2 * multiply_adds


@pytest.mark.parametrize(("count", "accumulation"), [(40, 16), (36, 4), (33, 8)])
def test_parts_of_a_short_mini_batch_are_weighted_by_their_size(count: int, accumulation: int) -> None:
    whole, in_parts = small_mlp(), small_mlp()
    settings = dataclasses.replace(SETTINGS, optimizer="sgd", learning_rate=0.1, batch_size=16)
    run(whole, settings, examples(count))
    run(in_parts, dataclasses.replace(settings, accumulation=accumulation), examples(count))
    for one, other in zip(whole.parameters(), in_parts.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_stage_with_a_fixed_number_of_updates_equals_a_loop_written_by_hand() -> None:
    """With Adam, warm-up and linear decay to 0, accumulated parts, clipping and repeated examples."""
    settings = StageSettings(
        epochs=3,
        updates=6,
        batch_size=16,
        accumulation=2,
        optimizer="adam",
        learning_rate=0.01,
        eps=1e-8,
        schedule="linear",
        warmup=2,
        clip=0.5,
    )
    predictor, train, valid = small_mlp(), examples(40), examples(9, seed=5)
    by_hand = copy.deepcopy(predictor)
    report = run(predictor, settings)

    order = seeded(1)
    indices = torch.cat([torch.randperm(40, generator=order) for _ in range(3)])[: 6 * 16].split(16)
    steps = torch.optim.Adam(by_hand.parameters(), betas=(0.9, 0.98), eps=1e-8)
    norms, losses, states = [], [], []
    for update, index in enumerate(indices, 1):
        steps.param_groups[0]["lr"] = 0.01 * (update / 2 if update <= 2 else (6 - update) / (6 - 2))
        steps.zero_grad()
        F.cross_entropy(by_hand(train.x[index]), train.y[index]).backward()  # equals the mean over two halves
        norms.append(float(torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)))
        steps.step()
        if update % 2 == 0:
            with torch.no_grad():
                losses.append(F.cross_entropy(by_hand(valid.x), valid.y).item())
            states.append(copy.deepcopy(by_hand.state_dict()))
    assert max(norms) > 0.5  # at least one gradient was clipped
    assert report.validation_loss == pytest.approx(losses, rel=1e-4)
    assert report.best_epoch == min(range(3), key=losses.__getitem__) + 1
    for name, tensor in predictor.state_dict().items():
        torch.testing.assert_close(tensor, states[report.best_epoch - 1][name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"updates": 5, "epochs": 2}, "updates=5 with epochs=2: .* choose a multiple of 2"),
        ({"updates": 4, "epochs": 2, "warmup": 4}, "warmup=4 with updates=4: .* lower warmup"),
        ({"updates": 1, "epochs": 1, "schedule": "linear"}, "updates=1 with schedule='linear': .* at least 2 updates"),
        ({"warmup": 1}, "warmup=1.*number of updates.*set updates"),
        ({"schedule": "linear"}, "schedule='linear'.*set updates"),
        ({"accumulation": 3}, "accumulation=3 with batch_size=16: .* choose a divisor"),
        ({"clip": 0.0}, "clip=0.0.*above 0.*clip=None"),
        ({"beta2": 1.0}, "beta2=1.0"),
        ({"balance": -0.01}, "balance=-0.01"),
    ],
)
def test_settings_of_updates_that_contradict_one_another_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **settings)


def test_empty_or_unequal_parts_raise() -> None:
    with pytest.raises(ValueError, match="valid: 0 examples"):
        run(small_mlp(), SETTINGS, valid=examples(0))
    with pytest.raises(ValueError, match="train: 40 inputs and 39 labels"):
        run(small_mlp(), SETTINGS, train=Examples(examples(40).x, examples(39).y))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("optimizer", "lion"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("momentum", 1.0),
        ("rho", -0.1),
        ("weight_decay", -1.0),
        ("augmentation", "cutout"),
        ("select", "loss"),
        ("patience", 0),
        ("precision", "fp16"),
        ("padding", 128),
    ],
)
def test_a_setting_out_of_range_raises_with_its_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}="):
        dataclasses.replace(SETTINGS, **{name: value})
