"""Agents by id: hyper-parameters, closed forms over whole streams, and the same curve after a restart at any tick."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents.catalogue.methods import METHODS
from agents.learners.firefly.firefly import Firefly
from agents.policies.specs import policy_from
from alma_env import AlmaEnv, Ledger, Row

from ..ledgers import curve

TICKS = 6
SMALL: dict[str, Any] = {"width": 4, "epochs": 2, "engine": "plain"}


def digits() -> AlmaEnv:
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def images(ticks: int = TICKS) -> AlmaEnv:
    """Return colour images under the name of CIFAR-10, so that the agents use VGG19 and its recipe."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, 72)
    x = (20 * y[:, None, None, None] + generator.integers(0, 60, (72, 3, 32, 32))).astype(np.uint8)
    data = alma_env.from_arrays((x[:60], y[:60]), (x[60:], y[60:]), classes=10, name="CIFAR10")
    return AlmaEnv(data, ticks)


def few_images() -> AlmaEnv:
    """Return the images in two stages."""
    return images(4)


MEMBERS = {digits: 5, images: 2}  # of ensembles; five are the default


def make(id: str, env: AlmaEnv, **keywords: Any) -> agents.AnytimeAgent:
    if env.data.name == "CIFAR10":
        keywords = {"width": 2, **keywords}
        if id in ("ens", "umix"):
            keywords = {"members": MEMBERS[images], **keywords}
        if id == "ff":
            keywords = {"candidates": 2, **keywords}
    if not METHODS[id].always:
        keywords = {"wait": 2, **keywords}
    return agents.make(id, env, **{**SMALL, **keywords})


def run(env: AlmaEnv, agent: agents.AnytimeAgent) -> Ledger:
    return agents.run(env, agent, seed=0)


def rows_until(tick: int, env: AlmaEnv, agent: agents.AnytimeAgent) -> list[Row]:
    """Return the rows of a run that ends after this tick."""
    env.reset(seed=0, options={"predictor": agent.predictor})
    for _ in range(tick):
        with env.meter:
            predictor = agent.observe(env.observation())
        env.step(predictor)
    return list(env.ledger)


@pytest.mark.parametrize(
    ("id", "stream"),
    [(id, stream) for stream in (digits, few_images) for id in METHODS if (id, stream) != ("ff", digits)],
)
def test_the_curve_depends_on_the_seed_only_and_goes_on_after_any_tick(
    id: str, stream: Callable[[], AlmaEnv], goes_on_after_any_tick: Callable[..., Ledger]
) -> None:
    first = goes_on_after_any_tick(stream, lambda env: make(id, env))
    # The first training shows it.
    trained = next(row.tick for row in first if row.paper_flops)
    other = rows_until(trained, env := stream(), make(id, env, seed=1))
    assert curve(other)[-1] != curve(first)[trained]


# Parameters and multiply-adds by hand, of MLP-4 on the digits and of VGG19-2 on the images: of the single model, and of
# one more expert per mixture.
SIZES = {
    digits: (4**2 + (64 + 10 + 2) * 4 + 10, 64 * 4 + 4 * 4 + 4 * 10),
    images: (135 * 2**2 + 85 * 2 + 10, 16848 * 2**2 + 27658 * 2),
}
EXPERT = {
    digits: ((64 + 1) * 4 + (4 + 1) * 4 + 2 * (64 + 1) + 2 * (4 + 1), (64 * 4 + 4 * 4) + 2 * (64 + 4)),
    images: (126 * 2**2 + 170 * 2 + 8, 9 * 2**2 * (2 * 256 + 4 * 64 + 4 * 16 + 4 * 4) + 4 * 2 * 16 * 2),
}
# Replay chooses the examples of a stage, whatever network learns from them: VGG19 need not repeat it.
BOTH = pytest.mark.parametrize(("stream", "replay"), [(digits, False), (digits, True), (images, False)])


@BOTH
@pytest.mark.parametrize("id", ["sm", "ens", "umix", "gens"])
def test_comp_and_mem_of_whole_streams_equal_the_closed_forms(
    id: str, replay: bool, stream: Callable[[], AlmaEnv]
) -> None:
    env = stream()
    ledger = run(env, make(id, env, replay=replay))
    stages, per_stage = 3, 2 * env.examples_per_tick
    processed = 2 * per_stage * (sum(range(1, stages + 1)) if replay else stages)  # 2 epochs
    parameters, macs = SIZES[stream]
    members = MEMBERS[stream] if id in ("ens", "umix") else 1
    score = ledger.score()
    assert score.paper_flops == members * 6 * macs * processed
    at_ticks = [max(1, tick // 2) if id == "gens" else members for tick in range(TICKS + 1)]
    assert score.mem == sum(at_ticks) * parameters
    assert [row.inference_flops for row in ledger] == [2 * macs * n for n in at_ticks]


@BOTH
def test_comp_and_mem_of_a_growing_mixture_equal_the_closed_forms(replay: bool, stream: Callable[[], AlmaEnv]) -> None:
    env = stream()
    ledger = run(env, make("gmoe", env, replay=replay))
    (parameters, macs), (more_parameters, more_macs) = SIZES[stream], EXPERT[stream]
    valid = len(env.observation()["valid"]["y"])
    stages = [(k, 2 * k if replay else 2) for k in (1, 2, 3)]  # experts, mega-batches
    experts = [max(1, tick // 2) for tick in range(TICKS + 1)]
    # 2 epochs, and one pass over the validation part before a growth step
    training = sum(6 * (macs + (k - 1) * more_macs) * 2 * n * env.examples_per_tick for k, n in stages)
    growth = sum(2 * (macs + (k - 2) * more_macs) * n * valid for k, n in stages[1:])
    score = ledger.score()
    assert score.paper_flops == training + growth
    assert score.comp_by_phase["growth"] == growth
    assert score.mem == sum(parameters + (k - 1) * more_parameters for k in experts)
    assert [row.inference_flops for row in ledger] == [2 * (macs + (k - 1) * more_macs) for k in experts]


@pytest.mark.parametrize("engine", ["plain", "native"])
def test_a_network_that_firefly_grew_can_be_deployed(engine: str) -> None:
    """The network is so wide that each of its weights has more numbers than the meter lets pass without a source."""
    env = images()
    ledger = run(env, make("ff", env, width=16, engine=engine))
    sizes = list(dict.fromkeys(row.parameters for row in ledger))
    assert sizes == sorted(sizes)
    assert len(sizes) == 3


def test_mem_of_firefly_reaches_the_target_of_every_growth_step() -> None:
    env = images()
    agent = make("ff", env)
    ledger = run(env, agent)
    assert isinstance(agent.learner, Firefly)
    first, reports = 135 * 2**2 + 69 * 2 + 10, agent.learner.growth_reports
    assert [report.target for report in reports] == [math.ceil(1.25 * first), math.ceil(1.5 * first)]
    sizes = [first] + [report.parameters_after for report in reports]
    assert all(report.target <= size for report, size in zip(reports, sizes[1:], strict=True))
    assert [row.parameters for row in ledger] == [sizes[max(0, tick // 2 - 1)] for tick in range(TICKS + 1)]


@pytest.mark.parametrize(
    ("id", "policy", "keywords", "message"),
    [
        ("sm", "doubling:growth=every", {}, "growth='every': agent 'sm' cannot grow"),
        ("gens", "doubling:growth=at:500", {}, "growth='at:500'.*tick 500"),
        ("gens", "doubling:stop=0.5,growth=at:5", {}, "tick 5 is after the last training at tick 3; use ticks from 1"),
        ("sm", "doubling", {"from_scratch": True}, "from_scratch=True without replay.*replay=True"),
    ],
)
def test_a_schedule_that_does_not_fit_the_agent_is_refused_before_the_run(
    id: str, policy: str, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        agents.make(id, digits(), policy=policy_from(policy), **keywords)
    assert agents.make("sm", digits(), policy=policy_from("doubling:replay=true"), from_scratch=True)


def test_the_oracle_is_the_single_model_from_scratch_on_all_data_at_every_tick() -> None:
    env = digits()
    oracle = run(env, make("oracle", env))
    single = run(env, make("sm", env, wait=1, replay=True, from_scratch=True))
    assert curve(oracle) == curve(single)
    learner = run(env, make("sm", env))
    expected = sum(row.error - best.error for row, best in zip(learner, oracle, strict=True))
    assert learner.score(oracle=oracle).regret == pytest.approx(expected)
    assert make("oracle", env, of="ens").learner.predictor.members  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("id", "keywords", "message"),
    [
        ("ens", {"members": 0}, "members=0.*at least 1"),
        ("gens", {"space": "votes"}, "space='votes'.*prob or logit"),
        ("umix", {"reduce": "max"}, "reduce='max'.*mean"),
        ("gmoe", {"gating": "sharp"}, "gating='sharp'.*soft"),
        ("gmoe", {"gating": "hard", "engine": "native"}, "engine='native': needs"),
        ("gmoe", {"init_experts": 0}, "init_experts=0.*at least 1"),
        ("moe", {"growth": "every"}, "agent 'moe' cannot grow.*gens, gmoe"),
        ("gens", {"growth": "at:2,7"}, "growth='at:2,7'.*tick 7.*1 to 6"),
        ("ff", {}, "agent 'ff' with an MLP.*CIFAR10"),
        ("gens-moe", {"experts": 0}, "^experts=0.*at least 1"),
        ("gens-moe", {"members": 2.5}, "members=2.5: must be a"),
        ("sm", {"members": 3}, "'members'.*agent 'sm' has no such"),
        ("ens", {"from_scratch": True}, "from_scratch=True.*replay=True"),
        ("oracle", {"wait": 3}, "trains at every tick"),
        ("oracle", {"of": "gens"}, "of='gens'.*sm, ens, umix"),
        ("fine-tune", {}, "'fine-tune': unknown; the agents are sm"),
    ],
)
def test_wrong_hyper_parameters_are_refused_with_a_remedy(id: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agents.make(id, digits(), **{**SMALL, **keywords})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"candidates": 2.5}, "candidates=2.5: must be a"),
        ({"score_points": 1.5}, "score_points=1.5: must be a"),
        ({"width": 1, "budget": "neurons", "growth_rate": 0.05}, "growth_rate=0.05.*0.0625"),
    ],
)
def test_wrong_hyper_parameters_of_firefly_are_refused_before_training(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("ff", images(), **keywords)
    assert make("ff", images(), **{"width": 1, "budget": "neurons", "growth_rate": 0.0625})


def test_numbers_of_numpy_are_accepted(tmp_path: Path) -> None:
    numbers = {"width": np.int64(3), "wait": np.int64(2), "seed": np.int64(2), "replay": np.bool_(True)}
    recipe = {"epochs": np.int32(1), "learning_rate": np.float32(0.5), "members": np.int64(2)}
    plain = {"width": 3, "wait": 2, "seed": 2, "replay": True, "epochs": 1, "learning_rate": 0.5, "members": 2}
    for number, stream in enumerate((digits, few_images)):
        first, second = [agents.make("ens", env := stream(), **given) for given in ({**numbers, **recipe}, plain)]
        assert first.config == second.config
        agents.run(env, first, 0, tmp_path / str(number))
    for numbers_of_growth, given in ((np.int64(1), 1), (np.array([1, 2]), [1, 2]), ((np.int64(1), 2), [1, 2])):
        assert agents.make("gmoe", digits(), grow_by=numbers_of_growth).config["grow_by"] == given
    policy = agents.fixed_wait(np.int64(3))
    agents.run(env := digits(), agents.make("sm", env, policy=policy, epochs=1), 0, tmp_path / "policy")


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"id": None}, ValueError, "agent None: must be the id of an agent as text; the agents are sm, ens"),
        ({"on_epoch": 3}, TypeError, "on_epoch=3: must be a function"),
        ({"device": torch.device("cpu")}, ValueError, r"device=device\(type='cpu'\): must be text; use for example"),
        (
            {"learning_rate": math.inf},
            ValueError,
            "learning_rate=inf: must be above 0 and finite; leave learning_rate out",
        ),
        ({"weight_decay": math.inf}, ValueError, "weight_decay=inf: must be at least 0 and finite"),
        ({"eps": 1e-60}, ValueError, "eps=1e-60: must be at least 1.2e-38, a number of float32; leave eps out"),
        ({"momentum": 1.0}, ValueError, "momentum=1.0: must be at least 0 and below 1; leave momentum out"),
        ({"epochs": 0}, ValueError, "epochs=0: must be at least 1; use epochs=100"),
    ],
)
def test_values_that_no_training_can_use_are_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        agents.make(**{"id": "sm", "env": digits(), **SMALL, **keywords})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"momentum": 0.5}, "momentum=0.5: only a run with optimizer='sgd' reads it; leave momentum out"),
        (
            {"optimizer": "sgd", "eps": 0.1},
            "eps=0.1: only a run with optimizer='adadelta' or optimizer='adam'",
        ),
        ({"padding": 2}, "padding=2: only a run with augmentation='crop_flip' reads it"),
        ({"balance": 0.1}, "balance=0.1: only a run with text reads it"),
    ],
)
def test_a_setting_without_effect_is_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        agents.make("sm", digits(), **keywords)


def test_a_gradient_of_hard_gates_is_refused_with_soft_ones():
    with pytest.raises(ValueError, match="straight_through='sparse': only a run with gating='hard' reads it"):
        agents.make("gmoe", digits(), straight_through="sparse")
    assert agents.make("gmoe", digits(), straight_through="sparse", gating="hard").stages == 0


def test_a_setting_has_an_effect_beside_what_it_needs():
    settings = {"optimizer": "sgd", "momentum": 0.5, "padding": 2, "augmentation": "crop_flip"}
    assert agents.make("sm", images(), **settings).config["stage"].items() >= settings.items()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 2.5}, "epochs=2.5: must be a whole number"),
        ({"epochs": "2"}, "epochs='2': must be a whole number"),
        ({"batch_size": 2.5}, "batch_size=2.5: must be a whole number"),
        ({"patience": 1.5}, "patience=1.5: must be a whole number or None"),
    ],
)
def test_settings_of_a_stage_have_their_types(settings, message):
    with pytest.raises(ValueError, match=message):
        agents.StageSettings(**settings)
    assert type(agents.StageSettings(epochs=np.int64(3)).epochs) is int


@pytest.mark.parametrize("id", [id for id, method in METHODS.items() if method.grows])
def test_growth_makes_stages_dearer_unless_it_is_free_for_the_method(id):
    env = images() if id == "ff" else digits()
    ledger = run(env, make(id, env, wait=1))
    first, *_, last = (sum(row.flops.values()) for row in ledger if row.flops)
    assert (last < 1.05 * first) == METHODS[id].free_growth  # mega-batches may differ by an example
