"""The arguments of `alma_env.make`, and data of one's own."""

from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction

import numpy as np
import pytest

import alma_env


def test_an_unknown_partition_is_called_by_its_keyword():
    with pytest.raises(ValueError, match=r"partition='other': must be one of alma, continuum"):
        alma_env.make("Digits-ALMA-v0", partition="other")


def test_numpy_numbers_are_saved_as_python_numbers():
    env = alma_env.make("Digits-ALMA-v0", ticks=np.int64(3), flops_budget=np.float32(1e9), parameter_budget=np.int32(9))
    env.reset(seed=0)
    assert json.loads(json.dumps(env.state_dict()))["protocol"]["ticks"] == 3
    assert type(env.ticks) is int


def test_real_numbers_of_other_kinds_are_saved_as_written():
    env = alma_env.make("Digits-ALMA-v0", ticks=3, valid_fraction=np.float32(0.29), flops_budget=Fraction(3, 2))
    env.reset(seed=0)
    protocol = json.loads(json.dumps(env.state_dict()))["protocol"]
    assert (protocol["valid_fraction"], protocol["flops_budget"]) == (0.29, 1.5)


@pytest.mark.parametrize("name", ["flops_budget", "parameter_budget"])
def test_a_budget_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name}=0: a budget must be positive"):
        alma_env.make("Digits-ALMA-v0", **{name: 0})
    with pytest.raises(ValueError, match="flops_budget=inf: a budget must be positive and finite; use None"):
        alma_env.make("Digits-ALMA-v0", flops_budget=float("inf"))


def test_an_id_or_a_folder_that_is_no_text_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="id=3: must be the id of a stream, one of MNIST-ALMA-v0"):
        alma_env.make(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="root=3: must be the path of a folder; use for example root='data'$"):
        alma_env.make("Digits-ALMA-v0", root=3)


def test_the_ids_for_gymnasium_are_ids_of_make_too():
    assert alma_env.make("alma_env:Digits-ALMA-v0", ticks=3).spec.id == "Digits-ALMA-v0"


def test_unknown_ids_and_keywords_are_refused():
    with pytest.raises(ValueError, match="id='CIFAR-ALMA-v0': unknown environment; the ids are MNIST-ALMA-v0"):
        alma_env.make("CIFAR-ALMA-v0")
    with pytest.raises(TypeError, match="colour"):
        alma_env.make("Digits-ALMA-v0", colour="red")
    with pytest.raises(TypeError, match="max_episode_steps=2: unknown keyword .*the keywords are ticks"):
        alma_env.make("Digits-ALMA-v0", max_episode_steps=2)  # of Gymnasium's wrappers
    with pytest.raises(ValueError, match="render_mode='rgb_array_list'.*make the environment with gymnasium.make"):
        alma_env.make("Digits-ALMA-v0", render_mode="rgb_array_list")


def test_a_stream_from_custom_arrays():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    env = alma_env.make("Arrays-ALMA-v0", train=(x[:100], y[:100]), test=(x[100:], y[100:]), ticks=5)
    observation, info = env.reset(seed=0)
    assert observation["train"]["x"].shape == (18, 3)
    assert observation in env.observation_space
    assert info["error"] == 0.5
    with pytest.raises(ValueError, match="without data"):
        alma_env.make("Arrays-ALMA-v0")
    with pytest.raises(ValueError, match="columns= with train= and test=: only data=PATH has rows"):
        alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x, y), columns=("x", "y"))


def test_an_environment_of_arrays_keeps_them_once():
    x, y = np.zeros((5_000, 200), np.float32), np.arange(5_000) % 2
    env = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x[:10], y[:10]), std=1.0, ticks=5)
    assert len(pickle.dumps(env)) < 2 * x.nbytes
    assert copy.deepcopy(env).spec.kwargs["data"] is env.data


@pytest.mark.parametrize(
    "keywords",
    [
        {"ticks": 2.5},
        {"valid_fraction": "abc"},
        {"flops_budget": "1e9"},
        {"evaluation_batch_size": 2.5},
        {"parameter_budget": True},
        {"data": "MNIST"},
        {"ticks": None},
        {"valid_fraction": None},
        {"evaluation_batch_size": None},
    ],
)
def test_keywords_of_the_wrong_type_are_refused(keywords):
    name, value = next(iter(keywords.items()))
    with pytest.raises(TypeError, match=f"{name}={value!r}: "):
        alma_env.make("Digits-ALMA-v0", **keywords)


@pytest.mark.parametrize("data", ["Digits", None, (np.zeros((4, 3)), np.zeros(4))], ids=["text", "none", "pair"])
def test_something_else_than_a_data_set_is_refused_with_the_remedy(data):
    with pytest.raises(TypeError, match=r"data=.*: must be a DataSet or a TextCorpus; use alma_env.make"):
        alma_env.AlmaEnv(data, 5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda env: env.reset(options=[1]), TypeError, r"options=\[1\]: must be a dict, for example {'predictor'"),
        (lambda env: env.reset(seed=1.0), TypeError, "seed=1.0: must be an integer, such as seed=1"),
        (lambda env: env.megabatch("1"), TypeError, "tick='1': must be an integer, such as tick=1"),
        (lambda env: env.megabatch(1.5), TypeError, "tick=1.5: must be an integer"),
        (lambda env: env.load_state_dict({}), ValueError, "state={}: must be what .*state_dict.* returned"),
        (lambda env: env.load_state_dict(None), ValueError, "state=None: must be what .*state_dict.* returned"),
    ],
)
def test_arguments_of_methods_are_refused_by_name(call, error, message):
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    env.reset(seed=0)
    with pytest.raises(error, match=message):
        call(env)


def test_a_numpy_integer_is_a_seed():
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    first = env.reset(seed=np.int64(3))[0]
    np.testing.assert_array_equal(first["train"]["x"], env.reset(seed=3)[0]["train"]["x"])
