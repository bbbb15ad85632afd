"""The command line with text: files of the user, and perplexities instead of error rates."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from agents.runs import run as runs
from agents.sweeps import process_setup
from alma_env import Ledger, registration
from alma_env.errors import how_to_install

from .running import run

WORDS = "the novel began on a dark evening when nobody in town expected another visitor".split()  # noqa: SIM905
STAGE = ["updates=2", "warmup=1", "epochs=1", "batch_size=3", "accumulation=1"]
SIZES = ["ticks=2", "sequence_length=16", "vocabulary_size=260"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with text files of a user, and a cache."""
    draw = random.Random(0)
    for name, n in (("novels/one", 20), ("novels/two", 20), ("valid", 2), ("test", 3)):
        documents = [" ".join(draw.choices(WORDS, k=12)) for _ in range(n)]
        (tmp_path / f"{name}.txt").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    return tmp_path


@pytest.fixture(autouse=True)
def _users_cache(folder, monkeypatch):
    from alma_env.text import arguments

    monkeypatch.setattr(arguments.platformdirs, "user_cache_path", lambda name, appauthor: folder / "cache" / name)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(folder)


def run_text(capsys, *settings, wait="1") -> tuple[int, str, str]:
    given = {setting.split("=")[0] for setting in settings}
    sizes = [size for size in SIZES if size.split("=")[0] not in given]  # a key that is given twice is an error
    return run(capsys, "run", "Text-ALMA-v0", "--width", "2", "--wait", wait, "--set", *STAGE, *sizes, *settings)


def score(run_folder: Path):
    return Ledger.from_json((run_folder / "ledger.jsonl").read_text()).score()


def test_own_files_are_settings_and_the_table_shows_perplexities(capsys, folder):
    files = ["train=novels", "valid=valid.txt", "test=test.txt"]
    status, out, err = run_text(capsys, *files)
    assert (status, err) == (0, "")
    (one,) = (path.parent for path in folder.rglob("ledger.jsonl"))
    config, of_run = json.loads((one / "config.json").read_text()), score(one)
    assert config["protocol"]["vocabulary"] == 260
    assert "novels" not in json.dumps(config)  # the configuration identifies the text by its digest
    for word in ("perplexity: per token of the test text, mean over ticks 1..B", "final", "Comp"):
        assert word in " ".join(out.split())
    assert f"average perplexity {of_run.mean_error_from_1:.2f}, final perplexity {of_run.final_error:.4f}" in out
    assert f"{of_run.mean_error_from_1:.2f}" in out.split("n: seeds")[0].splitlines()[-2]
    assert "CER" not in out
    assert "fractions" not in out
    picture = Path("runs", "Text-ALMA-v0", "perplexities.png")
    assert f"Perplexity curves: {picture}" in out
    assert (folder / picture).exists()
    # `alma show` prints it, too; runs on text and runs on images have one table each.
    assert "average" in run(capsys, "show", str(one))[1]
    run(capsys, "run", "--width", "4", "--wait", "2", "--set", "epochs=1", "ticks=2")
    status, out, err = run(capsys, "show", "runs")
    assert (status, err) == (0, "")
    assert out.index("Digits-ALMA-v0") < out.index("CER") < out.index("Text-ALMA-v0") < out.index("perplexity")
    assert {path.name for path in (folder / "runs").glob("*.png")} == {"errors.png", "perplexities.png"}


def test_without_files_the_stream_is_the_text_of_the_package(capsys, folder, monkeypatch):
    made = []
    monkeypatch.setattr(process_setup, "prepare", lambda *_: made.append(None))
    monkeypatch.setattr(runs, "run", lambda env, *_, **__: made.append(env) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(capsys, "run", "Text-ALMA-v0", "--wait", "4")
    assert made[-1].protocol() == registration.make("Text-ALMA-v0", train="tiny").protocol()


def test_a_finished_run_is_found_after_its_text_has_moved(capsys, folder):
    assert run_text(capsys, "train=novels", "valid=valid.txt", wait="2")[0] == 0
    ledger = next(folder.rglob("ledger.jsonl"))
    before = ledger.read_text()
    (folder / "novels").rename(folder / "books")
    assert run_text(capsys, "train=books", "valid=valid.txt", wait="2")[0] == 0
    assert ledger.read_text() == before
    assert len(list(folder.rglob("ledger.jsonl"))) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train=nowhere", "valid=valid.txt"], "train: 'nowhere' does not exist; pass an existing folder or file"),
        (["train=novels", "valid=nowhere.txt"], "valid: 'nowhere.txt' does not exist; pass an existing folder or file"),
        (["train=novels"], "train='novels' without valid: .* alma_env.make('Text-ALMA-v0', train=FOLDER, valid=FILE)"),
        (["valid=valid.txt"], "valid with train='tiny': "),
        (["train=novels", "valid=novels/one.txt"], "valid: 'novels/one.txt' is among the files of train, too"),
        (["train=.", "valid=valid.txt"], "valid: 'valid.txt' is among the files of train, too"),
        (["train=novels", "valid=valid.txt", "vocabulary_size=10"], "vocabulary_size=10: must lie between 257"),
        (["train=novels", "valid=valid.txt", "vocabulary_size=8k"], "vocabulary_size='8k': must be an integer"),
        (["train=novels", "valid=valid.txt", "ticks=50"], "ticks=50: train has 40 documents for 51 parts; pass more"),
        (["train=novels", "valid=valid.txt", "tokenizer=t.json"], "tokenizer='t.json': does not exist"),
        (["data=novels"], "--set data=novels: data has its own option"),
        (["root=novels"], "'root': agent 'sm' has no such hyper-parameter"),
    ],
)
def test_wrong_files_and_sizes_get_one_message_with_the_remedy_and_status_2(capsys, folder, settings, message):
    status, out, err = run_text(capsys, *settings)
    assert (status, out) == (2, "")
    parts = message.split(" .* ")
    assert all(part in err for part in parts), err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not list(folder.rglob("ledger.jsonl"))


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    status, _, err = run_text(capsys, "train=novels", "valid=valid.txt")
    assert status == 2
    assert how_to_install("text") in err
    assert "Traceback" not in err


def test_the_list_of_environments_names_the_text(capsys):
    _, out, _ = run(capsys, "envs")
    assert any("Text-ALMA-v0" in line and "switch-4" in line for line in out.splitlines())
