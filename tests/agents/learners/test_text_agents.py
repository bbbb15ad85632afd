"""Agents on text: the learners with a Switch Transformer, on a stream of a few pages."""

from __future__ import annotations

import bz2
import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents.catalogue.methods import TEXT_METHODS
from agents.learners.gmoe import GMoE, leaf_totals
from agents.learners.joined_parts import join_parts
from agents.networks.mixture import mixture_body
from agents.networks.switch import SwitchTransformer
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_size import SIZES, forward_flops, parameter_count
from alma_env import AlmaEnv, Ledger
from alma_env.text.stream import tiny_text

from ..ledgers import curve

VOCABULARY, LENGTH, TICKS = 280, 16, 3
UPDATES, BATCH = 4, 8
SMALL: dict[str, Any] = {
    "width": 2,
    "epochs": 2,
    "updates": UPDATES,
    "warmup": 1,
    "batch_size": BATCH,
    "accumulation": 2,
    "learning_rate": 1e-3,
    "validation_batch": 16,
}
FORWARD = forward_flops(VOCABULARY, dataclasses.replace(SIZES["tiny"], context=LENGTH), 2, LENGTH)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a few pages of the text that comes with the package, and return the files and a cache folder."""
    folder = tmp_path_factory.mktemp("pages")
    text = bz2.decompress(tiny_text()[0].read_bytes()).decode()
    files = {}
    for role, start, characters in (("train", 0, 9_000), ("valid", 9_000, 500), ("test", 10_000, 700)):
        files[role] = folder / f"{role}.txt"
        words = text[start : start + characters].split()
        # Documents of ten words.
        files[role].write_text("\n\n".join(" ".join(words[i : i + 10]) for i in range(0, len(words), 10)))
    return {**files, "cache": folder / "cache"}


@pytest.fixture
def env(pages: dict[str, Path]) -> AlmaEnv:
    return make_env(pages)


def make_env(pages: dict[str, Path], **keywords: Any) -> AlmaEnv:
    return alma_env.make(
        "Text-ALMA-v0",
        **{"ticks": TICKS, "vocabulary_size": VOCABULARY, "sequence_length": LENGTH, **pages, **keywords},
    )


def make(id: str, env: AlmaEnv, **keywords: Any) -> agents.AnytimeAgent:
    if id == "gmoe":
        keywords = {"grow_by": (2, 1), **keywords}
    return agents.make(id, env, **{**SMALL, **keywords})


def play(env: AlmaEnv, agent: agents.AnytimeAgent) -> Ledger:
    return agents.run(env, agent, seed=0)


EVERY = pytest.mark.parametrize("id", TEXT_METHODS)


@EVERY
def test_only_the_same_seed_gives_the_same_curve_which_goes_on_after_any_tick(
    id: str, pages: dict[str, Path], goes_on_after_any_tick: Callable[..., Ledger]
) -> None:
    first = goes_on_after_any_tick(lambda: make_env(pages), lambda env: make(id, env, dropout=0.1))
    # The first tick shows that another seed gives another curve.
    env = make_env(pages)
    other = make(id, env, dropout=0.1, seed=1)
    observation, _ = env.reset(seed=0, options={"predictor": other.predictor})
    with env.meter:
        predictor = other.observe(observation)
    env.step(predictor)
    assert curve(env.ledger)[1] != curve(first)[1]
    errors = [row.error for row in first]
    assert errors[-1] < errors[1] < errors[0]  # it learns


# --- closed forms ---

# Capacity for all tokens, so that none is dropped and all are charged.
ROOM = {"capacity_factor": 16.0}


@pytest.mark.parametrize("wait", [1, 3])
@pytest.mark.parametrize("id", ["sm", "ens", "gens"])
def test_comp_and_mem_of_whole_streams_equal_the_closed_forms(id: str, wait: int, env: AlmaEnv) -> None:
    ledger = play(env, make(id, env, wait=wait, **ROOM))
    stages = TICKS // wait
    members = 2 if id == "ens" else 1
    score = ledger.score()
    assert score.paper_flops == stages * members * UPDATES * BATCH * 3 * FORWARD
    at_ticks = [max(1, tick // wait) if id == "gens" else members for tick in range(TICKS + 1)]
    assert score.mem == sum(at_ticks) * parameter_count(VOCABULARY, _context(), 2)
    assert [row.inference_flops for row in ledger] == [n * FORWARD for n in at_ticks]
    # The validation set is the same at every tick, so waiting for more mega-batches does not make it larger.
    valid = len(env.observation()["valid"]["x"])
    validated = SMALL["epochs"] * stages * members * valid * FORWARD
    assert score.comp_by_phase["validation"] == validated


def test_comp_and_mem_of_a_growing_mixture_equal_the_closed_forms(env: AlmaEnv) -> None:
    ledger = play(env, make("gmoe", env, **ROOM))
    experts = [2, 2, 4, 5]  # at the ticks 0 to 3: 2, then 2 more, then 1
    router = 2 * LENGTH * SIZES["tiny"].width  # FLOPs of one additional row
    forwards = [FORWARD + (k - 2) * router for k in experts]
    assert [row.parameters for row in ledger] == [parameter_count(VOCABULARY, _context(), k) for k in experts]
    assert [row.inference_flops for row in ledger] == forwards
    valid = len(env.observation()["valid"]["x"])
    for tick in (2, 3):
        growth = ledger[tick].flops["growth"]  # one pass over V with the experts before the growth step
        assert growth == valid * forwards[tick - 1]
        training = UPDATES * BATCH * 3 * forwards[tick]
        assert ledger[tick].paper_flops - growth == training


def test_tokens_dropped_in_training_cost_nothing(pages: dict[str, Path]) -> None:
    env = make_env(pages, ticks=1)
    ample = UPDATES * BATCH * 3 * FORWARD  # by the closed form, if no token is dropped
    tight = play(env, make("sm", env, capacity_factor=0.5)).score().paper_flops
    d, tokens = SIZES["tiny"].width, UPDATES * BATCH * LENGTH
    assert ample - tight >= 3 * tokens * 16 * d * d / 2  # at least half of the tokens skip an expert of 16 d²


def _context() -> Any:
    return dataclasses.replace(SIZES["tiny"], context=LENGTH)


# --- identities ---


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_before_growth_growing_learners_equal_the_single_model(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    single, *growing = (make(id, env) for id in ("sm", "gmoe", "gens"))
    for agent in (single, *growing):
        agent.observe(observation)
    assert equal(single.predictor, growing[0].predictor)
    assert equal(single.predictor, growing[1].predictor.members[0])


def test_the_experts_with_the_largest_losses_on_the_validation_set_are_copied(env: AlmaEnv) -> None:
    agent = make("gmoe", env, width=4, grow_by=2)
    observation, _ = env.reset(seed=0)
    agent.observe(observation)
    learner = agent.learner
    assert isinstance(learner, GMoE)
    valid = join_parts([observation["valid"]])
    (totals,) = leaf_totals(learner.predictor, valid, 7)
    with torch.no_grad():
        (_, (shares,)) = mixture_body(learner.predictor).forward_with_shares(valid.x)
        losses = torch.nn.functional.cross_entropy(
            learner.predictor(valid.x).flatten(0, 1), valid.y.flatten().long(), reduction="none"
        )
    by_hand = [losses[shares.flatten(0, 1)[:, expert] == 1].double().sum().item() for expert in range(4)]
    assert totals.tolist() == pytest.approx(by_hand, rel=1e-5)
    before = mixture_body(learner.predictor).mixtures[0]
    learner.grow(valid, valid)
    (after,) = mixture_body(learner.predictor).mixtures
    chosen = sorted(np.argsort(by_hand)[-2:].tolist(), reverse=True)
    assert after.splits == tuple(chosen)
    for name, stack in after.named_parameters(recurse=False):
        assert torch.equal(stack, before.get_parameter(name)[[0, 1, 2, 3, *chosen]])


def test_the_perplexity_of_an_ensemble_averages_probabilities(env: AlmaEnv) -> None:
    """By Jensen's inequality it is at most the geometric mean of the members' perplexities."""
    agent = make("ens", env, members=3)
    observation, _ = env.reset(seed=0)
    with env.meter:
        predictor = agent.observe(observation)
    env.step(predictor)
    single = []
    for member in predictor.members:
        env.reset(seed=0, options={"predictor": member})
        single.append(env.ledger[0].error)
    env.reset(seed=0, options={"predictor": predictor})
    assert env.ledger[0].error < math.exp(np.mean(np.log(single)))


def test_the_test_text_does_not_change_any_weight(pages: dict[str, Path]) -> None:
    other = pages["test"].with_name("other.txt")
    other.write_text(pages["test"].read_text().upper())
    envs = [make_env(pages, ticks=2), make_env(pages, ticks=2, test=other)]  # two stages, and the growth between them
    ours, others = (play(env, make("gmoe", env)) for env in envs)
    assert [row.digest for row in ours] == [row.digest for row in others]
    assert [row.error for row in ours] != [row.error for row in others]


# --- several mega-batches ---


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory mappings of the Linux kernel")
def test_joined_parts_of_mapped_mega_batches_stay_in_a_file(env: AlmaEnv) -> None:
    env.reset(seed=0)
    env.step(None)
    parts = [env.megabatch(tick)["train"] for tick in (1, 2)]
    assert all(isinstance(part["x"], np.memmap) for part in parts)
    both = join_parts(parts)
    assert both.x.dtype == both.y.dtype == torch.int32
    for tensor in (both.x, both.y):
        (mapping,) = (line.split() for line in _maps() if _holds(line, tensor.data_ptr()))
        assert int(mapping[4]) != 0  # the inode of the file mapped at this address
    for name in ("x", "y"):
        assert np.array_equal(getattr(both, name).numpy(), np.concatenate([part[name] for part in parts]))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_raises_with_a_remedy(env: AlmaEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env.reset(seed=0)
    env.step(None)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
        with pytest.raises(OSError, match=r"file of [\d,]+ bytes for 2 mega-batches.*TMPDIR"):
            join_parts([env.megabatch(tick)["train"] for tick in (1, 2)])


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def _holds(line: str, address: int) -> bool:
    start, end = (int(number, 16) for number in line.split()[0].split("-"))
    return start <= address < end


# --- errors ---


@pytest.mark.parametrize(
    ("id", "keywords", "message"),
    [
        ("umix", {}, "agent 'umix' on text.*sm, ens, gens, gmoe, oracle"),
        ("ff", {}, "agent 'ff' on text"),
        ("transformer", {}, "agent 'transformer'"),
        ("sm", {"size": "huge"}, "size='huge'.*tiny, base, large"),
        ("sm", {"width": 0}, "width=0.*number of experts"),
        ("sm", {"dropout": 1.5}, "dropout=1.5.*below 1"),
        ("sm", {"checkpointing": 1}, "checkpointing=1.*True or False"),
        ("sm", {"capacity_factor": "a"}, "capacity_factor='a'.*a number"),
        ("sm", {"engine": "native"}, "engine='native': needs an MLP"),
        ("sm", {"augmentation": "crop_flip"}, "augmentation='crop_flip' on text"),
        ("gmoe", {"gating": "soft"}, "'gating'.*'gmoe'.*hyper-parameter"),
        ("gmoe", {"grow_by": (3,)}, "3 of 2 experts"),
        ("oracle", {"of": "umix"}, "of='umix'.*sm, ens"),
        ("sm", {"updates": 5}, "updates=5 with epochs=2"),
        ("ens", {"copy_noise": 0.01}, "copy_noise=0.01: only gmoe copies experts"),
    ],
)
def test_a_wrong_agent_or_keyword_raises(id: str, keywords: dict[str, Any], message: str, env: AlmaEnv) -> None:
    with pytest.raises(ValueError, match=message):
        agents.make(id, env, **{**SMALL, **keywords})


def test_the_oracle_of_an_ensemble_has_the_size_of_the_ensemble(env: AlmaEnv) -> None:
    oracle, ens = make("oracle", env, of="ens"), make("ens", env)
    assert len(list(oracle.predictor.parameters())) == len(list(ens.predictor.parameters()))


def test_the_network_on_text_follows_the_keywords(env: AlmaEnv) -> None:
    agent = make("sm", env, size="base", width=3, jitter=0.01, checkpointing=True)
    body = mixture_body(agent.predictor)
    assert isinstance(body, SwitchTransformer)
    size = dataclasses.replace(SIZES["base"], context=LENGTH)
    config = SwitchConfig(VOCABULARY, size, 3, jitter=0.01, checkpointing=True)
    assert (body.config, body.experts) == (config, 3)
    assert agent.config["size"] == "base"
