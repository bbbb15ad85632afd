"""The environment with text: token ids, perplexity on the hidden set, saved states, and arguments."""

from __future__ import annotations

import bz2
import copy
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("tokenizers")

import alma_env
from alma_env import AlmaEnv, DataUnavailableError, Ensemble, PredictorError
from alma_env.arena.arena import Arena
from alma_env.text import tokenizer as tokens
from alma_env.text.stream import tiny_text

LENGTH, VOCABULARY, TICKS = 32, 300, 4

Make = Callable[..., AlmaEnv]


class Unigram(nn.Module):
    """A predictor with equal logits at every position."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.float())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)


class Bigram(nn.Module):
    """A predictor from the present to the next token: a random table of low rank."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.present, self.next = (nn.Parameter(torch.randn(VOCABULARY, 8, generator=draw) / 2) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.present) @ self.next.T


class Returning(nn.Module):
    """A predictor that returns the value of a function."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, tokens: Tensor) -> Any:
        return self.make(tokens)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a third of the text that comes with the package, and a cache."""
    folder = tmp_path_factory.mktemp("text")
    for name, file in tiny_text()._asdict().items():
        documents = bz2.decompress(file.read_bytes()).decode().split("\n\n")
        (folder / f"{name}.txt").write_text("\n\n".join(documents[::3]), encoding="utf-8")
    return folder


@pytest.fixture
def make(folder: Path) -> Make:
    """A function that makes the environment of a small text, with changed arguments."""
    settings = {
        "train": folder / "train.txt",
        "valid": folder / "valid.txt",
        "sequence_length": LENGTH,
        "vocabulary_size": VOCABULARY,
        "cache": folder / "cache",
        "evaluation_batch_size": 64,
    }
    return lambda **changes: alma_env.make("Text-ALMA-v0", **(settings | changes))


@pytest.fixture
def env(make: Make) -> AlmaEnv:
    return make()


def hidden(env: AlmaEnv) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    assert env._stream is not None
    return env._stream.test


def train(model: nn.Module, observation: Any, steps: int = 2) -> None:
    """A few steps of training."""
    x, y = (torch.from_numpy(observation["train"][name][:64]).long() for name in ("x", "y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()


def play(env: AlmaEnv, model: nn.Module, seed: int = 0) -> list[Any]:
    """Play an episode with training at every tick; return the observations."""
    observation, _ = env.reset(seed=seed, options={"predictor": model})
    observations = [observation]
    while not env.done:
        with env.meter:
            train(model, observation)
        observation, *_ = env.step(model)
        observations.append(observation)
    return observations


def assert_same(one: Any, two: Any) -> None:
    for part in ("train", "valid"):
        for name in ("x", "y"):
            np.testing.assert_array_equal(one[part][name], two[part][name])


# --- observations ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*action space.*:UserWarning")
def test_gymnasiums_checker_passes_through_the_registered_id(folder: Path) -> None:
    from gymnasium.utils.env_checker import check_env

    env = gym.make("alma_env:Text-ALMA-v0", train="tiny", vocabulary_size=VOCABULARY, cache=folder / "cache")
    check_env(env.unwrapped, skip_render_check=False)


def test_an_observation_has_token_ids_and_their_next_tokens(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    for _ in range(TICKS + 1):
        assert observation in env.observation_space
        for part in observation.values():
            x, y = part["x"], part["y"]
            assert x.dtype == y.dtype == np.int32
            assert x.shape == y.shape == (len(x), LENGTH)
            assert 0 <= x.min() <= x.max() < VOCABULARY
            np.testing.assert_array_equal(y[:, :-1], x[:, 1:])
            np.testing.assert_array_equal(y[:-1, -1], x[1:, 0])
        assert len(observation["train"]["x"]) == env.examples_per_tick
        if not env.done:
            observation, *_ = env.step(None)


def test_the_validation_set_is_equal_at_every_tick(env: AlmaEnv) -> None:
    first, _ = env.reset(seed=0)
    train_parts = [first["train"]["x"].tobytes()]
    while not env.done:
        later, *_ = env.step(None)
        np.testing.assert_array_equal(later["valid"]["x"], first["valid"]["x"])
        train_parts.append(later["train"]["x"].tobytes())
    assert len(set(train_parts)) == TICKS  # the last one is returned twice


def test_the_seed_determines_the_stream(make: Make) -> None:
    one, two = make(), make()
    observation, _ = one.reset(seed=3)
    assert_same(observation, two.reset(seed=3)[0])
    assert_same(one.step(None)[0], two.step(None)[0])
    other, _ = two.reset(seed=4)
    assert not np.array_equal(other["train"]["x"][:50], observation["train"]["x"][:50])
    # Without a seed, the environment's generator draws one.
    drawn = [env.reset()[0] for env in (one, two)]
    assert one.stream_seed != two.stream_seed
    assert not np.array_equal(drawn[0]["train"]["x"][:50], drawn[1]["train"]["x"][:50])


def test_examples_per_tick_is_known_before_the_first_reset_and_depends_on_the_seed(make: Make) -> None:
    env = make()
    before = env.examples_per_tick
    observations = {seed: env.reset(seed=seed)[0] for seed in (0, 3)}
    assert before == len(observations[0]["train"]["x"])
    assert env.examples_per_tick == len(observations[3]["train"]["x"])
    assert make(ticks=2).examples_per_tick > before


# --- perplexity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 50_000])
def test_the_error_at_tick_0_is_the_size_of_the_vocabulary(make: Make, vocabulary: int) -> None:
    env = make(vocabulary_size=vocabulary)
    _, info = env.reset(seed=0)
    assert info["error"] == vocabulary
    assert env.ledger[0].parameters == 0
    assert env._stream is not None
    filled = env._stream.data.vocabulary
    assert filled == VOCABULARY if vocabulary == VOCABULARY else filled < vocabulary
    assert env.step(None)[1] == -vocabulary


def test_with_a_given_tokenizer_the_error_at_tick_0_is_the_size_of_its_vocabulary(make: Make, tmp_path: Path) -> None:
    tokens.trained(["some other text"], 270).save(str(tmp_path / "mine.json"))
    env = make(tokenizer=tmp_path / "mine.json")
    observation, info = env.reset(seed=0)
    assert 257 <= info["error"] == env.data.classes <= 270
    assert observation in env.observation_space
    assert observation["train"]["x"].max() < env.data.classes


def test_equal_logits_have_the_perplexity_of_the_uniform_guess(env: AlmaEnv) -> None:
    _, info = env.reset(seed=0, options={"predictor": Unigram(torch.full((VOCABULARY,), 7.0))})
    assert info["error"] == pytest.approx(VOCABULARY, rel=1e-6)


def test_the_error_of_a_unigram_predictor_is_its_perplexity(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    counts = np.bincount(observation["train"]["y"].ravel(), minlength=VOCABULARY) + 1.0
    probabilities = counts / counts.sum()
    with env.meter:
        model = Unigram(torch.from_numpy(counts).log())
        model(torch.zeros(1, 1))
    env.meter.declare(1, reason="counted in NumPy")
    _, reward, *_ = env.step(model)
    _, y = hidden(env)
    by_hand = np.exp(-np.log(probabilities)[y].mean())
    assert 1 < by_hand < VOCABULARY
    assert env.ledger[1].error == pytest.approx(by_hand, rel=1e-5)
    assert reward == -env.ledger[1].error


def test_rewards_are_minus_the_perplexities_and_the_score_has_their_mean(env: AlmaEnv) -> None:
    model = Bigram(0)
    env.reset(seed=0, options={"predictor": model})
    rewards = []
    while not env.done:
        with env.meter:
            train(model, env.observation())
        rewards.append(env.step(model)[1])
    assert rewards == sorted(rewards)  # it learns
    score = env.ledger.score()
    assert sum(rewards) == pytest.approx(-score.cer_from_1)
    assert score.mean_error_from_1 == pytest.approx(-np.mean(rewards))
    assert score.final_error == -rewards[-1] < env.ledger[0].error


def test_an_ensemble_averages_probabilities(env: AlmaEnv) -> None:
    members = [Bigram(seed) for seed in range(3)]
    env.reset(seed=0)
    x, y = hidden(env)
    everything = torch.arange(VOCABULARY)
    tables = torch.stack([member(everything).detach().double().softmax(1) for member in members]).numpy()
    for n in (1, 2, 3):  # a growing ensemble, whose first members are not run again
        env.meter.declare(1, reason="drawn")
        env.step(Ensemble(members[:n]))
        by_hand = np.exp(-np.log(tables[:n].mean(0)[x, y]).mean())
        assert env.ledger[n].error == pytest.approx(by_hand, rel=1e-5)
    single = [np.exp(-np.log(table[x, y]).mean()) for table in tables]
    assert env.ledger[3].error <= np.exp(np.mean(np.log(single)))


def test_an_ensemble_is_scored_again_on_the_hidden_set_of_another_seed(make: Make) -> None:
    ensemble = Ensemble([Bigram(0), Bigram(1)])
    env = make()
    errors = [env.reset(seed=seed, options={"predictor": ensemble})[1]["error"] for seed in (0, 1, 1, 0)]
    assert errors == [make().reset(seed=seed, options={"predictor": ensemble})[1]["error"] for seed in (0, 1, 1, 0)]
    assert errors[0] != errors[1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: torch.zeros(len(x), VOCABULARY), r"shape \(64, 300\): .*\(batch, tokens, vocabulary\)"),
        (lambda x: torch.zeros(*x.shape, VOCABULARY - 1), r"\(64, 32, 299\): .* = \(64, 32, 300\)"),
        (lambda x: torch.zeros(len(x), VOCABULARY, LENGTH), r"shape \(64, 300, 32\)"),
        (lambda x: torch.full((*x.shape, VOCABULARY), torch.nan), "NaN logits.*None to keep the previous one"),
        (lambda x: torch.zeros(*x.shape, VOCABULARY, dtype=torch.int64), "dtype torch.int64"),
        (lambda x: nn.functional.one_hot(x.long(), VOCABULARY).float() * 1e6, "perplexity inf: must be finite"),
    ],
)
def test_a_predictor_that_cannot_be_scored_does_not_change_the_episode(
    env: AlmaEnv, answer: Callable[[Tensor], Any], message: str
) -> None:
    observation, _ = env.reset(seed=0, options={"predictor": Bigram(0)})
    before = env.state_dict()
    with pytest.raises(PredictorError, match=message):
        env.step(Returning(answer))
    assert env.state_dict() == before
    assert_same(env.observation(), observation)
    assert env.step(None)[1] == -env.ledger[0].error


# --- the hidden set --------------------------------------------------------------------------------


def test_no_sequence_of_the_hidden_set_is_in_an_observation(env: AlmaEnv) -> None:
    env.reset(seed=0)
    seen = set()
    for t in range(1, TICKS + 1):
        for part in env.megabatch(t).values():
            # At every offset, not only at the start of a sequence.
            text = np.append(part["x"].ravel(), part["y"][-1, -1])
            seen |= {window.tobytes() for window in np.lib.stride_tricks.sliding_window_view(text, LENGTH)}
        if not env.done:
            env.step(None)
    x, _ = hidden(env)
    assert len(x) > 50
    assert not seen & {row.tobytes() for row in x}


def test_another_test_text_changes_errors_but_not_observations_or_weights(
    make: Make, folder: Path, tmp_path: Path
) -> None:
    text = (folder / "valid.txt").read_text(encoding="utf-8")
    played = []
    for name, test in (("one", text.upper()), ("two", text[::-1])):
        (tmp_path / f"{name}.txt").write_text(test, encoding="utf-8")
        env, model = make(test=tmp_path / f"{name}.txt"), Bigram(0)
        played.append((play(env, model), model.next.detach(), [row.error for row in env.ledger]))
    (observations, weights, errors), (others, other_weights, other_errors) = played
    for one, two in zip(observations, others, strict=True):
        assert_same(one, two)
    assert torch.equal(weights, other_weights)
    assert all(error != other for error, other in zip(errors, other_errors, strict=True))


def test_a_given_test_text_is_used_for_every_seed(make: Make, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("the same sentence again and again. " * 40)
    env = make(test=tmp_path / "test.txt")
    for seed in (0, 1):
        env.reset(seed=seed)
        x, y = hidden(env)
        assert env._stream is not None
        tokenizer = tokens.loaded(env._stream.data.tokenizer_file)
        text = tokenizer.decode([int(x[0, 0]), *y.ravel().tolist()])
        assert ("the same sentence again and again. " * 40).startswith(text)
        assert len(x) > 5


# --- episodes are saved, copied and continued ------------------------------------------------------


@pytest.mark.parametrize("stop", range(TICKS + 1))
def test_an_episode_saved_at_any_tick_continues_to_the_same_ledger(make: Make, stop: int) -> None:
    def play_until(env: AlmaEnv, model: nn.Module, until: int) -> None:
        while env.tick < until:
            with env.meter:
                train(model, env.observation())
            env.step(model)

    def rows(env: AlmaEnv) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in env.ledger.records()]

    whole, model = make(), Bigram(0)
    play(whole, model, seed=2)
    first, started = make(), Bigram(0)
    first.reset(seed=2, options={"predictor": started})
    play_until(first, started, stop)
    second = make()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert_same(second.observation(), first.observation())
    play_until(second, copy.deepcopy(started), TICKS)
    assert rows(second) == rows(whole)


@pytest.mark.parametrize("change", [{"vocabulary_size": 301}, {"sequence_length": 16}, {"train": "other"}])
def test_a_state_of_another_text_or_size_is_refused(make: Make, tmp_path: Path, change: dict[str, Any]) -> None:
    if "train" in change:
        (tmp_path / "other.txt").write_text("other text\n\n" * 9)
        change = {"train": tmp_path / "other.txt"}
    env = make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="in the saved state, .* here: .* make one with the saved values"):
        make(**change).load_state_dict(env.state_dict())


def test_environment_action_and_observation_can_be_pickled_and_copied(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    env.step(None)
    action = env.action_space.sample()
    assert action(torch.zeros(2, LENGTH, dtype=torch.int32)).shape == (2, LENGTH, VOCABULARY)
    reward = copy.deepcopy(env).step(copy.deepcopy(action))[1]
    pickled = pickle.dumps(env)
    assert len(pickled) < 20_000  # paths, not tokens
    for clone in (pickle.loads(pickled), copy.deepcopy(env)):
        assert clone.tick == 1
        assert clone.step(copy.deepcopy(action))[1] == reward
        assert clone.action_space == env.action_space
        assert clone.observation_space == env.observation_space
        assert clone.protocol() == env.protocol()
    assert_same(pickle.loads(pickle.dumps(copy.deepcopy(observation))), observation)
    assert env.tick == 1


def test_specs_round_trip_through_json() -> None:
    spec = gym.make("alma_env:Text-ALMA-v0", train="tiny", ticks=3, vocabulary_size=400).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json())).unwrapped
    assert isinstance(again, AlmaEnv)
    assert (again.ticks, again.data.classes) == (3, 400)


# --- make ------------------------------------------------------------------------------------------


def test_without_arguments_the_text_of_the_package_is_streamed(folder: Path) -> None:
    env = alma_env.make("Text-ALMA-v0", cache=folder / "cache")
    observation, info = env.reset(seed=0)
    assert (env.ticks, info["error"]) == (4, 1_000)
    assert observation["train"]["x"].shape[1] == 64
    assert len(observation["train"]["x"]) > 200
    named = alma_env.make("Text-ALMA-v0", train="tiny")
    assert named.protocol() == env.protocol()


def test_a_given_text_has_the_papers_sizes_by_default() -> None:
    env = alma_env.make("Text-ALMA-v0", train=tiny_text().train, valid=tiny_text().valid)
    assert (env.data.classes, env.data.input_shape, env.ticks) == (50_000, (512,), 4)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"train": "nowhere", "valid": "v.txt"}, DataUnavailableError, "train: 'nowhere' does not exist; pass"),
        ({"train": "t.txt", "valid": "nowhere"}, DataUnavailableError, "valid: 'nowhere' does not exist; pass"),
        ({"train": "t.txt", "valid": "t.txt"}, ValueError, "valid: 't.txt' is among the files of train, too"),
        ({"train": "t.txt", "valid": None}, ValueError, "train='t.txt' without valid: .*train=FOLDER, valid=FILE"),
        ({"train": None}, TypeError, "train=None: must be a folder, a file or a list of files"),
        ({"train": "tiny"}, ValueError, "valid with train='tiny': .* leave valid out, or pass train, too"),
        ({"train": "tiny", "valid": None, "test": "t.txt"}, ValueError, "test with train='tiny': .* leave test out"),
        ({"vocabulary_size": 256}, ValueError, "vocabulary_size=256: must lie between 257"),
        ({"vocabulary_size": "many"}, TypeError, "vocabulary_size='many': must be an integer"),
        ({"sequence_length": 0}, ValueError, "sequence_length=0: a sequence has at least 1 token"),
        ({"tokenizer": "nowhere.json"}, DataUnavailableError, "tokenizer='nowhere.json': does not exist; pass"),
        ({"cache": 5}, TypeError, "cache=5: must be a path"),
        ({"ticks": 0}, ValueError, "ticks=0: a stream has at least 1 mega-batch"),
        ({"ticks": 2.5}, TypeError, "ticks=2.5: must be a whole number"),
        ({"valid_fraction": 0.2}, ValueError, "valid_fraction=0.2.* with text: .*leave both out"),
        ({"partition": "continuum"}, ValueError, "partition='continuum' with text: .* leave both out"),
        ({"root": "data"}, TypeError, "root='data': unknown keyword .* ticks, .*train, .*cache"),
        ({"data": "Text"}, TypeError, "data='Text': .*Arrays-ALMA-v0"),
    ],
)
def test_invalid_arguments_are_refused_by_make(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.txt", "v.txt"):
        (tmp_path / name).write_text("some text")
    with pytest.raises(error, match=message):
        make(**changes)


def test_a_text_that_changes_after_the_environment_was_made_is_refused(make: Make, tmp_path: Path) -> None:
    train = tmp_path / "train.txt"
    train.write_bytes(bz2.decompress(tiny_text().train.read_bytes()))
    env = make(train=train)
    before = env.data.digest
    with train.open("a", encoding="utf-8") as file:
        file.write("\n\nOne more document.\n")
    with pytest.raises(DataUnavailableError, match="a file has changed since the environment was made; make"):
        env.reset(seed=0)
    again = make(train=train)
    again.reset(seed=0)
    assert again.data.digest != before


def test_a_text_that_is_too_short_is_refused_at_reset(make: Make) -> None:
    env = make(sequence_length=200_000)
    with pytest.raises(ValueError, match="sequence_length=200000: the part .* lower sequence_length"):
        env.reset(seed=0)
    assert env.tick == -1


def test_make_names_a_missing_package_and_the_command_that_installs_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'alma-env\[text\]'"):
        make()


def test_in_the_arena_every_agent_gets_separate_arrays(make):
    game = Arena(make(), 2)
    observations, _ = game.reset(seed=0)
    kept = observations["agent_1"]["train"]["x"].copy()
    for part in ("train", "valid"):
        observations["agent_0"][part]["x"][:] = 0
    np.testing.assert_array_equal(observations["agent_1"]["train"]["x"], kept)
    np.testing.assert_array_equal(game.megabatch(1)["train"]["x"], kept)
    assert observations["agent_1"]["valid"]["x"].any()
    while game.agents:
        observations, *_ = game.step({agent: game.action_space(agent).sample() for agent in game.agents})
    assert observations["agent_0"] in game.observation_space("agent_0")
    assert [len(ledger) for ledger in game.ledgers.values()] == [game.ticks + 1] * 2
