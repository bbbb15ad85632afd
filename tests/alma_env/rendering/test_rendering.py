"""Pictures of the stream and of the arena: render modes, wrappers of Gymnasium, and what drawing must not change."""

from __future__ import annotations

import copy
import io
import pickle
import random
import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import HumanRendering, RecordVideo
from pettingzoo.test.render_test import render_test
from torch import nn

import alma_env
from alma_env import arena
from alma_env.metering import meter
from alma_env.rendering import palette, picture
from alma_env.rendering.view import Trace, View

from ..predictors import train

ID = "Digits-ALMA-v0"
TICKS = 5
BLUE = tuple(int(palette.COLOURS[0][place : place + 2], 16) for place in (1, 3, 5))


class Network(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Parameter(torch.randn(width, 64, generator=generator) / 8)
        self.second = nn.Parameter(torch.randn(10, width, generator=generator) / 4)

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x.flatten(1).float() / 16, self.first).relu(), self.second)


def play(env, draw=None):
    """Train at ticks 1, 3 and 5, with a wider network from tick 3 on; return the frames."""
    draw = draw or env.render
    observation, _ = env.reset(seed=0)
    frames, model = [draw()], Network(4)
    for tick in range(1, TICKS + 1):
        if tick == 3:
            model = Network(8)
        if tick % 2:
            with env.unwrapped.meter:
                train(model, observation, steps=10)
                frames.append(draw())  # also in the middle of a tick
        observation, *_ = env.step(model)
        frames.append(draw())
    return frames


@pytest.mark.parametrize(("phase", "trained"), [("training", True), ("validation", False), ("policy", False)])
def test_only_work_that_changes_weights_is_a_training(phase, trained):
    env = alma_env.make(ID, ticks=2)
    env.reset(seed=0)
    with env.meter, meter.phase(phase):
        torch.ones(3, 3) @ torch.ones(3, 3)
    env.step(None)
    assert env.ledger[1].flops == {phase: 54}
    assert Trace.of_ledger(env.ledger).trained.tolist() == [False, trained]


def made(**keywords):
    return gym.make(ID, ticks=TICKS, **keywords)


def coloured(frame, colour):
    return int((frame == np.array(colour, np.uint8)).all(-1).sum())


# --- Modes -----------------------------------------------------------------------------------------


def test_a_line_per_tick_says_what_the_learner_did():
    lines = list(dict.fromkeys(play(made(render_mode="ansi"))))  # without the repeated lines in the middle of a tick
    assert len(lines) == TICKS + 1
    assert lines[0] == "tick 0/5  error 0.9000, CER 0.90, Comp 0 FLOPs, 0 parameters, no data yet"
    assert [line.rpartition(", ")[2] for line in lines[1:]] == [
        "trained",
        "waited",
        "trained and grew",
        "waited",
        "trained",
    ]
    assert "592 parameters" in lines[-1]


def test_an_image_shows_the_curve_so_far_in_an_array_of_its_own():
    frames = play(made(render_mode="rgb_array"))
    assert {(frame.shape, frame.dtype) for frame in frames} == {((420, 720, 3), np.dtype(np.uint8))}
    drawn = [coloured(frame, BLUE) for frame in frames]
    assert drawn == sorted(drawn)  # the curve only gets longer
    assert 0 < drawn[0] < drawn[-1] / 3


def test_trainings_and_growth_have_marks():
    def frame(trained, grown):
        trace = Trace(np.full(3, 0.5), np.array(trained), np.array(grown), 1.0, 0.0)
        return picture.Picture(View("stream", 4, {"agent": trace})).draw(View("stream", 4, {"agent": trace}))

    none = [False] * 3
    plain, trained, grown = frame(none, none), frame([False, True, False], none), frame(none, [False, True, False])
    assert coloured(plain, BLUE) < coloured(trained, BLUE) < coloured(grown, BLUE)


def test_fixed_waits_are_faint_lines_with_their_number():
    env = made(render_mode="rgb_array")
    env.reset(seed=0)
    without = env.render()
    env.unwrapped.fixed_waits = {wait: [0.9] * wait + [0.2] * (TICKS + 1 - wait) for wait in (1, 2, 5)}
    assert coloured(env.render(), (179, 179, 179)) > coloured(without, (179, 179, 179)) + 500


def test_the_terminal_shows_the_episode_in_place_and_gets_its_cursor_back(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    env = made(render_mode="human")
    assert set(play(env, draw=lambda: None)) == {None}
    shown = terminal.getvalue()
    assert "tick 5 of 5" in shown
    assert "█" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # shown after it was hidden
    terminal.truncate(0)
    env.reset(seed=0)
    env.close()
    env.close()
    assert "\x1b[?25h" in terminal.getvalue()


def test_output_that_is_no_terminal_gets_one_line_per_tick(capsys):
    env = made(render_mode="human")
    assert set(play(env)) == {None}
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8] for line in lines] == [f"tick {tick}/5" for tick in range(TICKS + 1)]


def test_a_broken_budget_is_named_and_ends_the_curve_at_the_last_tick():
    env = made(render_mode="ansi", flops_budget=1.0)
    observation, _ = env.reset(seed=0)
    with env.unwrapped.meter:
        train(model := Network(4), observation)
    env.step(model)
    assert env.render().startswith("tick 5/5")
    assert env.render().endswith("exceeded a budget at tick 1")


def test_an_error_of_zero_is_drawn():
    view = View("stream", 2, {"agent": Trace.of([0.9, 0.0], [False, True], [1, 1], 1.0)})
    assert view.limits()[0] == 0.7
    assert coloured(picture.Picture(view).draw(view), BLUE) > 0


@pytest.mark.parametrize(
    "errors", [[0.9, 0.83], [0.9, 0.5], [0.9, 0.03], [0.98, 0.001], [1000, 812.5], [50257, 31], [0.9, 2 / 19]]
)
def test_the_error_axis_has_at_least_three_round_numbers_and_contains_the_errors(errors):
    view = View("stream", 2, {"agent": Trace.of(errors, [False, True], [1, 1], 1.0)})
    low, high = view.limits()
    assert low <= min(errors) < max(errors) < high
    marks = view.marks()
    assert 3 <= len(marks) <= 10
    assert all(low <= mark <= high and len(f"{mark:g}".replace(".", "").strip("0")) <= 2 for mark in marks)


def test_perplexities_have_their_own_words():
    trace = Trace.of([1000.0, 500.0, 400.0], [False, True, True], [8, 8, 8], 2e9)
    view = View("Text-ALMA-v0", 4, {"agent": trace}, is_rate=False)
    assert picture.summary(view, trace) == ("perplexity 400.0, average perplexity 450.0, Comp 2 G FLOPs, 8 parameters")


# --- Errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [alma_env.make, gym.make, arena.parallel_env, arena.env])
def test_an_unknown_mode_is_refused_with_the_known_ones_and_none_is_a_mode(make):
    with pytest.raises(ValueError, match="render_mode='depth_array': must be None or one of 'human', 'rgb_array', 'a"):
        make(ID, render_mode="depth_array")
    env = make(ID, render_mode=None)
    assert env.render_mode is None


def test_without_a_mode_nothing_is_drawn_and_a_warning_says_why():
    env = made().unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without specifying any render mode"):
        assert env.render() is None


@pytest.mark.parametrize("make", [alma_env.make, arena.parallel_env])
def test_nothing_can_be_drawn_before_the_first_reset(make):
    with pytest.raises(RuntimeError, match="render\\(\\) before reset\\(\\): there is no episode to draw; call reset"):
        make(ID, ticks=TICKS, render_mode="ansi").render()


# --- What drawing must not change ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["rgb_array", "ansi", "human"])
def test_drawing_charges_nothing_and_draws_no_random_number(mode):
    def columns(env):
        return [{**vars(row), "seconds": 0.0} for row in env.unwrapped.ledger]

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - the global generators
    play(undrawn := made(), draw=lambda: None)
    play(drawn := made(render_mode=mode))
    assert columns(drawn) == columns(undrawn)
    assert drawn.unwrapped.np_random.bit_generator.state == undrawn.unwrapped.np_random.bit_generator.state
    assert random.getstate() == states[0]
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), states[1], strict=True))  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])


def test_one_figure_is_kept_for_all_frames_and_episodes(monkeypatch):
    figures = []
    monkeypatch.setattr(
        picture, "Figure", lambda *args, make=picture.Figure, **kw: figures.append(1) or make(*args, **kw)
    )
    env = made(render_mode="rgb_array")
    play(env)
    play(env)
    assert len(figures) == 1


def test_only_an_image_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import raises ImportError
    monkeypatch.delitem(sys.modules, "alma_env.rendering.picture")
    play(made(render_mode="ansi"))
    play(env := made(render_mode="rgb_array"), draw=lambda: None)
    with pytest.raises(ImportError, match="matplotlib"):
        env.render()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_an_environment_draws_its_own_pictures(copied):
    env = made(render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    before = env.render()
    other = copied(env)
    env.step(None)
    assert np.array_equal(other.render(), before)
    assert not np.array_equal(env.render(), before)


# --- Other people's software -----------------------------------------------------------------------


def test_gymnasium_collects_the_frames():
    env = made(render_mode="rgb_array_list")
    env.reset(seed=0)
    env.step(None)
    assert [frame.shape for frame in env.render()] == [(420, 720, 3)] * 2


@pytest.fixture(params=["MoviePy", "a stand-in"])
def moviepy(request, monkeypatch):
    """MoviePy, if it is installed; and a stand-in, because MoviePy 2.2 does not allow the Pillow of constraints.txt."""
    if request.param == "MoviePy":
        return pytest.importorskip("moviepy")

    class ImageSequenceClip:
        def __init__(self, frames, fps):
            self.frames, self.fps = frames, fps

        def write_videofile(self, path, **_):
            np.savez(path, frames=self.frames, fps=self.fps)

    names = ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[names[-1]].ImageSequenceClip = ImageSequenceClip
    return None


def test_gymnasium_records_a_video(moviepy, tmp_path):
    env = RecordVideo(made(render_mode="rgb_array"), str(tmp_path))
    play(env, draw=lambda: None)
    env.close()
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("rl-video-episode-0.mp4")
    if moviepy is None:
        with np.load(file) as video:
            assert video["frames"].shape == (TICKS + 1, 420, 720, 3)
            assert video["fps"] == 10
    else:
        with moviepy.VideoFileClip(str(file)) as clip:
            assert (clip.size, clip.fps) == ([720, 420], 10)


def test_gymnasium_shows_the_images_in_a_window(monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = HumanRendering(made(render_mode="rgb_array"))
    play(env, draw=lambda: None)
    assert env.screen_size == (720, 420)
    env.close()


def test_the_render_test_of_pettingzoo_passes():
    render_test(lambda render_mode: arena.env(ID, 3, ticks=TICKS, render_mode=render_mode))


def test_a_picture_of_the_arena_has_all_agents_and_those_that_left():
    env = arena.parallel_env(ID, ["mine", "yours"], ticks=TICKS, flops_budget={"yours": 1.0}, render_mode="ansi")
    observations, _ = env.reset(seed=0)
    model = Network(4)
    with env.meters["yours"]:
        train(model, observations["yours"])
    env.step({"mine": None, "yours": model})
    env.step({"mine": None})
    mine, yours = env.render().removeprefix("tick 2/5  ").split(" | ")
    assert mine == "mine: error 0.9000, CER 2.70, Comp 0 FLOPs, 0 parameters, waited"
    assert yours.startswith("yours: error 0.9000, CER 2.70")
    assert yours.endswith("exceeded a budget at tick 1")


def test_the_image_of_an_arena_has_a_row_and_a_colour_for_each_agent():
    env = arena.parallel_env(ID, 3, ticks=TICKS, render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (480, 720, 3)
    for colour in palette.COLOURS[:3]:
        assert coloured(frame, [int(colour[place : place + 2], 16) for place in (1, 3, 5)]) > 20
