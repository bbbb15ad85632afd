"""``alma plot``: files per stream, the choice of runs, and messages about wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.cli import main
from agents.reproduction.outcome import recorded_runs
from agents.runs import load

from ...fake_runs import fake_run, write
from ...grid_of_runs import GRID, NO_REPLAY, TEXT


def test_alma_plot_writes_separate_files_per_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.pack([*NO_REPLAY, *TEXT], tmp_path / "both.jsonl.xz")
    write(fake_run("umix", 4, 5), tmp_path / "runs")
    where = ["--out", str(tmp_path / "out"), "--format", "svg", "pdf", "csv"]
    assert main(["plot", "errors", str(tmp_path / "both.jsonl.xz"), str(tmp_path / "runs"), *where]) == 0
    names = {f"errors-{env}-ALMA-v0.{form}" for env in ("Digits", "Text") for form in ("svg", "pdf", "csv")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    first = (tmp_path / "out" / "errors-Text-ALMA-v0.svg").read_bytes()
    assert main(["plot", "errors", str(tmp_path / "both.jsonl.xz"), *where, "--where", "env=Text-ALMA-v0"]) == 0
    assert (tmp_path / "out" / "errors.svg").read_bytes() == first  # equal runs give equal bytes
    assert main(["plot", "perplexity", str(tmp_path / "both.jsonl.xz"), *where]) == 0
    assert "Digits-ALMA-v0: left out, because perplexity cannot show its measure" in capsys.readouterr().out


def test_a_kind_that_shows_several_streams_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longer = [fake_run("sm", 4, wait, seed, ticks=40) for wait in (1, 5) for seed in (0, 1)]
    load.pack([*NO_REPLAY, *longer, *TEXT], tmp_path / "all.jsonl.xz")
    words = [str(tmp_path / "all.jsonl.xz"), "--out", str(tmp_path / "out"), "--format", "csv"]
    assert main(["plot", "best-wait-by-width", *words]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"best-wait-by-width.csv", "best-wait-by-width.md"}
    shown = capsys.readouterr().out
    assert "Text-ALMA-v0: left out, because best-wait-by-width cannot show its measure" in shown
    assert f"best-wait-by-width of {len(NO_REPLAY) + len(longer)} runs" in shown


def test_a_stream_that_cannot_be_drawn_is_left_out_and_the_others_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = [fake_run("sm", 4, 5, env="MNIST-ALMA-v0"), fake_run("sm", 4, 5, env="CIFAR10-ALMA-v0")]
    load.pack([*one, *NO_REPLAY], tmp_path / "some.jsonl.xz")
    words = ["plot", "radar", str(tmp_path / "some.jsonl.xz"), "--out", str(tmp_path / "out"), "--format", "csv"]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for env in ("MNIST-ALMA-v0", "CIFAR10-ALMA-v0"):
        assert f"{env}: left out: radar of one setting on {env}: it compares settings; give at least two" in shown
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["radar-Digits-ALMA-v0.csv"]
    assert main([*words, "--where", "env=MNIST-ALMA-v0,CIFAR10-ALMA-v0"]) == 1
    assert capsys.readouterr().out.count("left out") == 2
    assert main([*words, "--where", "env=MNIST-ALMA-v0"]) == 2
    words[1:2] = ["errors", "--panels", "zz"]
    assert main(words) == 2  # a wrong option is the same for all streams
    told = capsys.readouterr()
    assert told.err.count("panels='zz': ") == 1
    assert "left out" not in told.out


def test_the_runs_of_the_package_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", str(tmp_path), "--format", "csv", "--where", "env=Text-ALMA-v0"]
    assert main(["plot", "errors", "--recorded", *words]) == 0
    count = sum(run.run_config.env == "Text-ALMA-v0" for run in recorded_runs())
    assert f"errors of {count} runs on Text-ALMA-v0" in capsys.readouterr().out
    assert main(["plot", "errors", "--recorded", *words, "agent=ens"]) == 0
    capsys.readouterr()
    own = tmp_path / "some.jsonl.xz"
    load.pack(TEXT, own)
    assert main(["plot", "errors", "--out", str(tmp_path), str(own)]) == 0  # a path may follow an option
    assert f"errors of {len(TEXT)} runs" in capsys.readouterr().out
    assert main(["plot", "errors", "--recorded", str(own), *words]) == 0
    assert f"errors of {len(TEXT)} runs" in capsys.readouterr().out  # the other stream has its own figure
    assert main(["plot", "errors"]) == 2
    assert "no PATH: give folders of runs or packed files, or --recorded" in capsys.readouterr().err


def test_runs_are_chosen_by_one_value_or_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.pack([*GRID, fake_run("umix", 5, 2, seed=9, members=2)], tmp_path / "some.jsonl.xz")
    words = ["plot", "errors", str(tmp_path / "some.jsonl.xz"), "--out", str(tmp_path), "--format", "csv", "--where"]
    for where, number in (
        (["agent=sm,ens", "width=4", "replay=false"], 2 * 2 * 3),
        (["wait=1,5", "seed=0"], 3 * 2 * 2 * 2),
        (["agent.policy.growth=every"], 2 * 2 * 2 * 3),
        (["agent.members=2"], 1),  # the others have none
    ):
        assert main([*words, *where]) == 0
        assert f"errors of {number} runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "kind 'nonsense': unknown; the kinds of figures are"),
        (["errors", "--format", "jpg"], "format 'jpg': unknown; choose one or more of png, svg, pdf, csv"),
        (["errors", "--out", "errors.png"], "must be a folder"),
        (["errors", "--where", "width=5"], "--where width=5: none of 3 finished runs has this value; choose among 4\n"),
        (
            ["errors", "--where", "wait=1", "seed=7,8"],
            "--where seed=7,8: none of 3 finished runs has the value 7; choose",
        ),
        (["errors", "--where", "agent.height=5"], "the keys are env, agent, width, wait, replay, seed"),
        (["errors", "--where", "width"], "--where width: must have the form key=value"),
        (["errors", "--layer", "1"], "--layer with errors: it is an option of gating; leave it out"),
        (["perplexity"], "perplexity of Digits-ALMA-v0"),
    ],
)
def test_alma_plot_refuses_wrong_input_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    load.pack(NO_REPLAY[:3], tmp_path / "some.jsonl.xz")
    assert main(["plot", words[0], str(tmp_path / "some.jsonl.xz"), *words[1:]]) == 2
    assert message in capsys.readouterr().err
