"""Cheaters who train where the meter does not see it, and then make the result look metered inside of a block.

Each is refused. The honest learners below, who do similar things, are accepted.
"""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

import alma_env
from alma_env import UnmeteredTrainingError
from alma_env.metering import meter

from .gallery import attack, each

REFUSED = "the predictor is refused until the work is declared"

FEATURES, CLASSES = 12, 3


def arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, FEATURES)).astype(np.float32)
    return x, (x @ np.random.default_rng(7).normal(size=(FEATURES, CLASSES))).argmax(1)


@pytest.fixture
def env():
    return alma_env.make("Arrays-ALMA-v0", train=arrays(0), test=arrays(1), ticks=5)


@pytest.fixture
def started(env):
    model = network()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    return env, model, observation


def network():
    return nn.Sequential(nn.Linear(FEATURES, CLASSES))


def tensors(observation):
    return tuple(torch.from_numpy(observation["train"][name]) for name in ("x", "y"))


def fit(model, observation, steps=30):
    x, y = tensors(observation)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def charge(observation):
    """Charge some FLOPs."""
    torch.ones(FEATURES, FEATURES) @ torch.ones(FEATURES, FEATURES)


def in_thread(what, *args):
    thread = threading.Thread(target=what, args=args)
    thread.start()
    thread.join()


def solution(observation):
    """Least squares in NumPy: weights (classes, features), float32."""
    part = observation["train"]
    return np.linalg.lstsq(part["x"], np.eye(CLASSES)[part["y"]], rcond=None)[0].T.astype(np.float32, order="C")


# --- trained outside, on the predictor itself, and then an operation in the block ------------------


def trained_before(env, model, observation):
    fit(model, observation)


def trained_in_pause(env, model, observation):
    with env.meter, env.meter.paused():
        fit(model, observation)


def trained_in_thread(env, model, observation):
    with env.meter:
        in_thread(fit, model, observation)


def trained_without_modes(env, model, observation):
    with env.meter, _disable_current_modes():
        fit(model, observation)


def trained_in_numpy(env, model, observation):
    model[0].weight.detach().numpy()[...] = solution(observation)


WHERE = [trained_before, trained_in_pause, trained_in_thread, trained_without_modes, trained_in_numpy]


def multiplied(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0)


def added_to_zero(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.zeros_like(parameter))


def trained_for_one_honest_step(model, observation):
    fit(model, observation, 1)


def moved_through_new_tensors(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter * 2) / 2)


def replaced(model, observation):
    for name, parameter in list(model[0].named_parameters()):
        setattr(model[0], name, nn.Parameter(parameter.detach() + 0))


def touched(model, observation):
    meter.running().touch(model)


def changed_by_a_counted_function(model, observation):
    @alma_env.meter.count_once
    def again(model, x):
        model(x)

    again(model, tensors(observation)[0])
    multiplied(model, observation)


@pytest.mark.parametrize("where", each("launders a predictor that was", WHERE, REFUSED))
@pytest.mark.parametrize(
    "washed",
    each(
        "trains outside of the block, and inside the parameters are",
        [
            multiplied,
            added_to_zero,
            trained_for_one_honest_step,
            moved_through_new_tensors,
            replaced,
            touched,
            changed_by_a_counted_function,
        ],
        REFUSED,
    ),
)
def test_a_predictor_that_was_trained_outside_stays_so(started, where, washed):
    env, model, observation = started
    where(env, model, observation)
    with env.meter:
        charge(observation)
        washed(model, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
    env.meter.declare(10_000, reason="the work outside")
    env.step(model)
    assert env.ledger[1].declared


def test_what_was_declared_once_can_be_trained_on(started):
    env, model, observation = started
    fit(model, observation)
    env.meter.declare(10_000, reason="the work outside")
    observation, *_ = env.step(model)
    with env.meter:
        fit(model, observation, 2)
    observation, *_ = env.step(model)
    trained_in_numpy(env, model, observation)
    with env.meter:
        fit(model, observation, 2)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


# --- numbers from outside, written into the predictor by operations -------------------------------


def as_integers(weights):
    return torch.from_numpy(weights.view(np.int32)).view(torch.float32)


def as_scaled_integers(weights):
    return torch.from_numpy((weights * 1000).astype(np.int64)).float() / 1000


def as_a_look_up(weights):
    table = torch.arange(4001) / 1000 - 2
    return table[torch.from_numpy(np.clip(weights * 1000 + 2000, 0, 4000).astype(np.int64))]


def as_bytes(weights):
    return torch.frombuffer(bytearray(weights.tobytes()), dtype=torch.float32).view(weights.shape)


def as_a_list(weights):
    return torch.tensor(weights.tolist())


def as_numbers_one_by_one(weights):
    made = torch.zeros(weights.shape)
    for row in range(len(weights)):
        for column in range(weights.shape[1]):
            made[row, column] = float(weights[row, column])
    return made


def as_stacked_numbers(weights):
    return torch.stack([torch.tensor(number) for number in weights.ravel().tolist()]).view(weights.shape)


def through_memory_of_pytorch(weights):
    made = torch.zeros(weights.shape)
    made.numpy()[...] = weights
    return made


def through_empty_memory(weights):
    made = torch.empty(weights.shape)
    made.numpy()[...] = weights
    return made + 0


def as_a_sparse_tensor(weights):
    return torch.from_numpy(weights).to_sparse().to_dense()


def as_booleans(weights):
    bits = np.unpackbits(weights.view(np.uint8).reshape(-1, 1), axis=1, bitorder="little").astype(bool)
    places = 2 ** torch.arange(8)
    return (torch.from_numpy(bits) * places).sum(1).to(torch.uint8).view(torch.float32).view(weights.shape)


def as_data_times_weights(weights):
    x = np.ones((len(weights), 1), np.float32)
    return torch.from_numpy(x * weights)


def in_a_product_with_one(weights):
    return torch.eye(len(weights)) @ torch.from_numpy(weights)


def by_dlpack(weights):
    return torch.from_dlpack(weights.copy())


ROUTES = [
    as_integers,
    as_scaled_integers,
    as_a_look_up,
    as_bytes,
    as_a_list,
    as_numbers_one_by_one,
    as_stacked_numbers,
    through_memory_of_pytorch,
    through_empty_memory,
    as_a_sparse_tensor,
    as_booleans,
    as_data_times_weights,
    in_a_product_with_one,
    by_dlpack,
]


@pytest.mark.parametrize("route", each("brings weights into the block", ROUTES, REFUSED))
@pytest.mark.parametrize("add", [False, True])
def test_numbers_from_outside_stay_foreign(started, route, add):
    env, model, observation = started
    weights = solution(observation)
    with env.meter, torch.no_grad():
        charge(observation)
        made = route(weights)
        if add:
            model[0].weight.mul_(0).add_(made)
        else:
            model[0].weight.copy_(made)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


# --- another network, trained outside -------------------------------------------------------------


def its_state(model, worker):
    model.load_state_dict(worker.state_dict())


def its_sum(model, worker):
    for parameter, other in zip(model.parameters(), worker.parameters(), strict=True):
        parameter.mul_(0).add_(other)


def its_gradients(model, worker):
    for parameter, other in zip(model.parameters(), worker.parameters(), strict=True):
        parameter.grad = parameter.detach() - other.detach()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


@pytest.mark.parametrize(
    "moved", each("trains a worker in a thread, and the block takes", [its_state, its_sum, its_gradients], REFUSED)
)
@pytest.mark.parametrize("made", [lambda model: copy.deepcopy(model), lambda model: network()])
@pytest.mark.parametrize("inside", [False, True])
def test_a_worker_trained_in_a_thread_cannot_hand_over(started, moved, made, inside):
    env, model, observation = started
    worker = made(model)
    if not inside:
        in_thread(fit, worker, observation)
    with env.meter:
        charge(observation)
        if inside:
            in_thread(fit, worker, observation)
        with torch.no_grad():
            moved(model, worker)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("brings weights into the block in a tensor that only its own library can read", REFUSED)
def test_an_opaque_tensor_from_outside_is_foreign(started):
    env, model, observation = started
    opaque = torch.from_numpy(solution(observation)).to_mkldnn()
    with env.meter, torch.no_grad():
        charge(observation)
        model[0].weight.copy_(opaque.to_dense())
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("trains a network outside, and deploys it as a new one", REFUSED)
def test_a_new_network_trained_outside_is_not_an_initialisation(started):
    env, _, observation = started
    worker = network()
    fit(worker, observation)
    again = network()
    again.load_state_dict(worker.state_dict())
    with env.meter:
        fit(again, observation, 1)
    with pytest.raises(UnmeteredTrainingError, match="may have been trained"):
        env.step(again)


@attack("puts a network's parameters into the memory of a NumPy array", REFUSED)
def test_parameters_in_the_memory_of_numpy_are_not_an_initialisation(started):
    env, model, observation = started
    model[0].weight = nn.Parameter(torch.from_numpy(solution(observation)))
    with env.meter:
        fit(model, observation, 1)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("computes gradients outside, and applies them inside", REFUSED)
def test_gradients_made_outside_cannot_be_applied_inside(started):
    env, model, observation = started
    x, y = tensors(observation)
    nn.functional.cross_entropy(model(x), y).backward()
    with env.meter:
        charge(observation)
        torch.optim.SGD(model.parameters(), lr=0.5).step()
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights into the labels of a mega-batch", REFUSED)
def test_labels_overwritten_with_weights_are_not_data(started):
    env, model, observation = started
    weights = solution(observation)
    observation["train"]["y"][: weights.size] = (weights.ravel() * 1000).astype(np.int64)
    with env.meter, torch.no_grad():
        charge(observation)
        numbers = torch.from_numpy(observation["train"]["y"])[: weights.size].float() / 1000
        model[0].weight.mul_(0).add_(numbers.view(weights.shape))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights in a thread between two calls of a counted function", REFUSED)
def test_a_thread_between_two_counted_calls_is_seen(started):
    env, model, observation = started
    weights = torch.from_numpy(solution(observation))

    @alma_env.meter.count_once
    def step(weight, x):
        x @ weight.T
        weight.mul_(1.0)

    with env.meter, torch.no_grad():
        step(model[0].weight, tensors(observation)[0])
        in_thread(model[0].weight.data.copy_, weights)
        step(model[0].weight, tensors(observation)[0])
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights in a thread after the last call of a counted function", REFUSED)
def test_a_thread_after_a_counted_call_is_seen(started):
    env, model, observation = started
    weights = torch.from_numpy(solution(observation))
    step = alma_env.meter.count_once(lambda weight, x: weight.mul_(1.0).add_((x @ weight.T).sum(), alpha=0.0))
    with env.meter, torch.no_grad():
        step(model[0].weight, tensors(observation)[0])
        in_thread(model[0].weight.data.copy_, weights)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


# --- honest learners ------------------------------------------------------------------------------


def plain(env, model, observation):
    with env.meter:
        fit(model, observation)
    return model


def built_outside(env, model, observation):
    second = network()
    with env.meter:
        fit(second, observation)
    return second


def built_inside(env, model, observation):
    with env.meter:
        second = network()
        fit(second, observation)
    return second


def with_adam(env, model, observation):
    x, y = tensors(observation)
    with env.meter:
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        for _ in range(40):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y, weight=torch.tensor([1.0, 0.7, 1.2])).backward()
            optimizer.step()
    return model


def in_shuffled_batches(env, model, observation):
    x, y = tensors(observation)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with env.meter:
        for rows in np.array_split(rng.permutation(len(x)), 4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


def in_batches_of_numpy(env, model, observation):
    part = observation["train"]
    rng = np.random.default_rng(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with env.meter:
        for start in range(0, 32, 16):
            for rows in (slice(start, start + 16), rng.permutation(len(part["x"]))[:16]):
                x, y = torch.from_numpy(part["x"][rows]), torch.from_numpy(part["y"][rows])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return model


def on_rescaled_data(env, model, observation):
    x = torch.from_numpy((observation["train"]["x"] - 0.25) / 3)
    y = torch.tensor(observation["train"]["y"])
    with env.meter:
        nn.functional.cross_entropy(model(x), y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


def with_the_best_weights_kept_outside(env, model, observation):
    with env.meter:
        fit(model, observation)
    best = copy.deepcopy(model.state_dict())
    with env.meter:
        fit(model, observation)
    model.load_state_dict(best)
    with env.meter:
        fit(model, observation, 1)
    return model


def after_a_copy_of_the_environment(env, model, observation):
    with env.meter:
        fit(model, observation)
    copied = copy.deepcopy(env)
    with copied.meter:
        fit(model, observation)
    copied.step(model)
    assert copied.ledger[1].comp > env.meter.total
    with env.meter:
        fit(model, observation, 0)
    return copy.deepcopy(model) if False else plain(env, network(), observation)


def with_parts_erased(env, model, observation):
    x, y = tensors(observation)
    x = x.clone()
    with env.meter:
        for row in range(40):
            x[row, row % 9 : row % 9 + 3] = 0.25
        nn.functional.cross_entropy(model(x.clone()), y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


def in_an_opaque_format(env, model, observation):
    with env.meter, torch.no_grad():
        x = tensors(observation)[0].to_mkldnn().to_dense()
        model[0].weight.add_((x.T @ nn.functional.one_hot(tensors(observation)[1], CLASSES).float()).T, alpha=0.01)
    return model


def with_forward_derivatives(env, model, observation):
    x, y = tensors(observation)
    weight, bias = (parameter.detach() for parameter in model.parameters())
    with env.meter:
        direction = torch.randn_like(weight)
        loss = lambda weight: nn.functional.cross_entropy(x @ weight.T + bias, y)  # noqa: E731
        _, slope = torch.func.jvp(loss, (weight,), (direction,))
        with torch.no_grad():
            model[0].weight.sub_(slope * direction, alpha=0.01)
    return model


@pytest.mark.parametrize(
    "learner",
    [
        plain,
        with_parts_erased,
        in_an_opaque_format,
        with_forward_derivatives,
        built_outside,
        built_inside,
        with_adam,
        in_shuffled_batches,
        in_batches_of_numpy,
        on_rescaled_data,
        with_the_best_weights_kept_outside,
        after_a_copy_of_the_environment,
    ],
)
def test_honest_learners_are_accepted(started, learner):
    env, model, observation = started
    for tick in range(1, 4):
        predictor = learner(env, model, observation)
        observation, *_ = env.step(predictor)
        assert env.ledger[tick].comp > 0
        if learner is after_a_copy_of_the_environment:
            return


def test_data_gathered_in_numpy_are_recognised(started):
    env, model, observation = started
    gathered = []
    for _ in range(3):
        gathered.append(observation["train"])
        both = {name: np.concatenate([part[name] for part in gathered]) for name in ("x", "y")}
        with env.meter:
            fit(model, {"train": both})
        observation, *_ = env.step(model)
    assert env.tick == 3
