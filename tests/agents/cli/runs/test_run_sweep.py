"""``alma sweep``: messages about options that contradict each other name the options that the user wrote."""

from __future__ import annotations

import pytest

from agents.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("grid.toml --no-replay", "--no-replay with grid.toml: describe the grid in the file or by options"),
        ("grid.toml --replay", "--replay with grid.toml: describe the grid in the file or by options"),
        ("--no-replay --replay --seeds 1", "--seeds --no-replay --replay without --env: a grid needs an environment"),
        ("--env Digits-ALMA-v0 --no-replay --no-replay", "--no-replay: given twice, but each run counts once"),
    ],
)
def test_a_message_about_replay_has_the_option_as_written(words, message, capsys):
    assert main(["sweep", *words.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith(f"alma sweep: {message}")


def test_two_names_of_one_run_are_refused(tmp_path, capsys):
    names = ["doubling", "doubling:first=1"]
    assert main(["run", "--policy", *names, "--width", "4", "--set", "ticks=4", "--out", str(tmp_path / "out")]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "sm 4, doubling:first=1, ticks=4, seed 0: the same run as Digits-ALMA-v0: sm 4, doubling, ticks=4" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    ["run alma_env/Digits-ALMA-v0 --width 4 --wait 2", "arena alma_env/Digits-ALMA-v0 --agents sm:width=4"],
)
def test_an_id_with_its_namespace_has_the_folder_of_the_id(words, tmp_path, capsys):
    assert main([*words.split(), "--set", "ticks=2", "epochs=1", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["Digits-ALMA-v0"]
    assert list(tmp_path.glob("Digits-ALMA-v0/**/errors.png"))
    assert "alma_env/" not in capsys.readouterr().out


def test_own_data_may_be_given_to_the_id_with_its_namespace(tmp_path, capsys):
    assert main(["run", "alma_env/Arrays-ALMA-v0", "--data", str(tmp_path / "none.npz")]) == 2
    assert "data of its own" not in " ".join(capsys.readouterr().err.split())


def test_a_sweep_counts_two_names_of_one_run_once(tmp_path, capsys):
    names = ["doubling", "doubling:factor=2.0"]
    words = ["sweep", "--env", "Digits-ALMA-v0", "--policy", *names, "--width", "4", "--set", "ticks=2", "epochs=1"]
    words += ["--workers", "1", "--out", str(tmp_path)]
    for dry, real in (
        ("1 run: 0 done, 0 started, 1 to run", "1 run is finished;"),
        ("1 run: 1 done, 0 started, 0 to run", "1 run is finished, 1 of them from before;"),
    ):
        assert main([*words, "--dry-run"]) == 0
        assert dry in capsys.readouterr().out
        assert main(words) == 0
        assert real in capsys.readouterr().out


def test_a_folder_is_no_grid(tmp_path, capsys):
    assert main(["sweep", str(tmp_path)]) == 2
    assert f"{tmp_path}: no such file; give a TOML file with a grid" in " ".join(capsys.readouterr().err.split())
