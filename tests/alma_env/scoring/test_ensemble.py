"""Ensembles are scored like all predictors, and only their new members are run."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn

import alma_env
from alma_env import AlmaEnv, Ensemble, PredictorError
from alma_env.errors import DivergedError

ran: list[str] = []


class Member(nn.Module):
    """A linear network that records its runs."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 10)
        nn.init.normal_(self.linear.weight, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(self.linear.bias)
        self.name = name

    def forward(self, x):
        ran.append(self.name)
        return self.linear(x)


class Prepare(nn.Module):
    """A preparation that costs FLOPs."""

    seeds = itertools.count()  # different weights for each object, and the same in every session

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 8)
        draw = torch.Generator().manual_seed(next(self.seeds))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.125, 0.125, generator=draw)

    def forward(self, x):
        return self.linear(x.flatten(1).float() / 16)


class Wrapped(nn.Module):
    """A module that computes what `inner` computes and is not an `Ensemble`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.fixture
def env() -> AlmaEnv:
    ran.clear()
    return alma_env.make("Digits-ALMA-v0", ticks=10)


def members(*names: str) -> list[nn.Module]:
    return [Member(name, seed=ord(name)) for name in names]


def row(env: AlmaEnv, predictor: nn.Module) -> tuple[float, float, int]:
    env.reset(seed=0, options={"predictor": predictor})
    return env.ledger[0].error, env.ledger[0].inference_flops, env.ledger[0].parameters


@pytest.mark.parametrize("space", ["prob", "logit"])
def test_an_ensemble_has_the_score_of_an_equal_predictor_that_is_no_ensemble(env, space):
    prepare = Prepare()
    for names in ("a", "ab", "abc", "abcde", "ab", "xbc"):
        ensemble = Ensemble(members(*names), prepare, space)
        assert row(env, ensemble) == row(env, Wrapped(copy.deepcopy(ensemble)))
        assert row(env, ensemble)[1] == 2 * 64 * 8 + len(names) * 2 * 8 * 10


def test_only_new_members_are_run(env):
    prepare = Prepare()
    batches = -(-len(env.data.test_y) // env.evaluation_batch_size)
    for names, expected in (("a", "a"), ("abc", "bc"), ("abcd", "d"), ("xbcd", "xbcd"), ("xb", "xb"), ("xb", "")):
        ran.clear()
        row(env, Ensemble(members(*names), prepare))
        assert ran == [name for name in expected for _ in range(batches)]
    ran.clear()
    row(env, Ensemble(members("x", "b"), Prepare()))  # another preparation: all members are run again
    assert ran == [name for name in "xb" for _ in range(batches)]


def test_the_validation_error_runs_only_new_members_of_an_ensemble(env):
    prepare = Prepare()
    env.reset(seed=0)
    batches = -(-len(env._stream.validation[1]) // env.evaluation_batch_size)
    steps = ((0, "a", "a"), (0, "abc", "bc"), (0, "xbc", "xbc"), (1, "xbc", "xbc"), (1, "xbc", ""))
    for seed, names, expected in steps:
        if env.stream_seed != seed:
            env.reset(seed=seed)  # other validation examples: all members are run again
        ran.clear()
        error = env.validation_error(Ensemble(members(*names), prepare))
        assert ran == [name for name in expected for _ in range(batches)]
        assert error == env.validation_error(Wrapped(Ensemble(members(*names), prepare)))


def test_a_changed_member_is_run_again(env):
    ensemble = Ensemble(members("a", "b"), Prepare())
    before = row(env, ensemble)
    with torch.no_grad():
        ensemble.members[0].linear.weight.neg_()
    ran.clear()
    assert row(env, ensemble)[0] != before[0]
    assert set(ran) == {"a", "b"}


def test_incremental_scoring_works_after_pickling(env):
    prepare = Prepare()
    row(env, Ensemble(members("a"), prepare))
    ran.clear()
    restored = pickle.loads(pickle.dumps(env))
    fresh = alma_env.make("Digits-ALMA-v0", ticks=10)
    assert row(restored, Ensemble(members("a", "b"), prepare)) == row(fresh, Ensemble(members("a", "b"), prepare))


def test_a_member_that_cannot_be_scored_is_named(env):
    with pytest.raises(PredictorError, match=r"member 1 of the ensemble: .* returned shape \(\d+, 4\)"):
        row(env, Ensemble([*members("a"), nn.Linear(8, 4)], Prepare()))


def test_a_member_that_diverged_is_named(env):
    broken = members("a")
    torch.nn.init.constant_(broken[0].linear.weight, float("nan"))
    with pytest.raises(DivergedError, match="member 0 of the ensemble: .*NaN.*; deploy another") as caught:
        row(env, Ensemble(broken, Prepare()))
    assert ";" not in caught.value.what


class Failing(nn.Module):
    """A preparation that raises."""

    def forward(self, x):
        raise RuntimeError("not these inputs")


def test_a_preparation_that_raises_is_a_predictor_error(env):
    with pytest.raises(PredictorError, match="preparation of the ensemble raised RuntimeError .* not these inputs"):
        row(env, Ensemble(members("a"), Failing()))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (nn.Linear(3, 3), "members of type Linear: must be a list"),
        ([3], "member of type int: must be an nn.Module"),
    ],
)
def test_members_that_are_no_modules_are_refused(members, message):
    with pytest.raises(TypeError, match=message):
        alma_env.Ensemble(members)


def test_members_can_come_from_an_iterator():
    networks = [nn.Linear(3, 3), nn.Linear(3, 3)]
    assert list(alma_env.Ensemble(iter(networks)).members) == networks


def test_random_numbers_of_a_preparation_do_not_change_the_learners_generator(env):
    class Drawing(Prepare):
        def forward(self, x):
            return super().forward(x) + torch.rand(1)

    ensemble = Ensemble(members("a"), Drawing())
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    row(env, ensemble)
    assert torch.rand(1) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_ensemble_on_a_gpu_is_scored_on_the_gpu(env):
    ensemble = Ensemble(members("a", "b"), Prepare())
    assert row(env, copy.deepcopy(ensemble).cuda())[1:] == row(env, ensemble)[1:]


def upside_down(total, members):
    return -total


@pytest.mark.parametrize("change", ["hook", "method", "module"])
def test_a_modified_ensemble_is_run_as_a_whole(env, change):
    prepare = Prepare()
    ensemble = Ensemble(members("a", "b"), prepare)
    if change == "hook":
        ensemble.register_forward_hook(lambda module, inputs, output: -output)
    elif change == "method":
        ensemble.mean = upside_down
    else:
        ensemble.register_module("unused", nn.Linear(3, 3))
    wrong = ensemble(torch.from_numpy(env.data.test_x.copy())).argmax(1).numpy() != env.data.test_y
    error, _, parameters = row(env, ensemble)
    assert error == pytest.approx(wrong.mean())
    assert parameters == sum(parameter.numel() for parameter in ensemble.parameters())
    env.reset(seed=0, options={"predictor": Ensemble(members("a", "b"), prepare)})
    assert (env.ledger[0].error == error) == (change == "module")


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return torch.full((len(x), 10), self.value)


@pytest.mark.parametrize("space", ["prob", "logit"])
def test_an_ensemble_whose_average_is_nan_has_diverged(space):
    env = alma_env.make("Digits-ALMA-v0", ticks=2)
    members = [Constant(float("inf")), Constant(float("-inf"))]
    with pytest.raises(DivergedError, match="NaN logits"):
        env.reset(seed=0, options={"predictor": Ensemble(members, space=space)})


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 10))

    def forward(self, x):
        return x.flatten(1).float() @ self.weight

    def __deepcopy__(self, memo):
        new = Other()
        new.weight.data.fill_(1.0)
        return new


def test_the_copy_of_a_preparation_must_be_equal():
    env = alma_env.make("Digits-ALMA-v0", ticks=2)
    with pytest.raises(PredictorError, match="the preparation of the ensemble: its copy has other content"):
        env.reset(seed=0, options={"predictor": Ensemble([nn.Identity()], prepare=Other())})


class WithNames(nn.Module):
    """A preparation with a set, whose copy may have another order."""

    def __init__(self):
        super().__init__()
        self.names = {f"column {number}" for number in range(12)}

    def forward(self, x):
        return x.flatten(1).float()


@pytest.mark.parametrize(
    "prepare",
    [WithNames(), nn.Sequential(WithNames(), nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)))],
    ids=["set", "weight norm"],
)
def test_a_preparation_may_change_in_its_copy_what_is_no_number(prepare):
    env = alma_env.make("Digits-ALMA-v0", ticks=2)
    _, info = env.reset(seed=0, options={"predictor": Ensemble([nn.Linear(64, 10)], prepare=prepare)})
    assert 0 < info["error"] <= 1
