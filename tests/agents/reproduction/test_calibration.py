"""How many times as long this machine takes as the rates of the package say."""

from __future__ import annotations

import math

import pytest

from agents.catalogue.spec import RunSpec
from agents.reproduction import calibration
from agents.reproduction.calibration import Calibration, calibrate, samples_for, slowness
from agents.reproduction.cost import cost_of
from alma_env import AlmaError


def test_each_process_measures_each_sample():
    found = calibrate(["Digits", "Text"], workers=2)
    assert [(one.data, len(one.factors)) for one in found] == [("Digits", 4)]
    assert all(factor > 0 for factor in found[0].factors)


def test_data_of_equal_images_are_measured_once():
    assert samples_for(["CIFAR100", "FashionMNIST", "MNIST", "CIFAR10", "Text"]) == ["MNIST", "CIFAR10"]


def test_a_process_that_ends_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setattr(calibration, "_prepare", math.sqrt)  # raises an error in each process
    with pytest.raises(AlmaError, match="one of 2 processes ended without a result; .* give fewer --workers"):
        calibrate(["Digits"], workers=2)


def test_hours_are_those_of_a_slower_machine():
    specs = [RunSpec(f"{data}-ALMA-v0", "sm", 4, 10) for data in ("MNIST", "FashionMNIST", "CIFAR10")]
    found = [Calibration("MNIST", (2.0, 8.0))]
    expected = [4, 4, 1]  # the geometric mean; Fashion-MNIST has images of the same size; CIFAR-10 was not measured
    assert [cost_of([spec], slowness(found)).seconds / cost_of([spec]).seconds for spec in specs] == pytest.approx(
        expected
    )
