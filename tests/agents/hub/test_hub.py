"""Learned policies and recorded runs are pushed and pulled without a network: folders, and a client that copies."""

from __future__ import annotations

import dataclasses
import lzma
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

from agents.cli import main
from agents.hub import policies, recorded_runs
from agents.policies.learned.features import feature_space
from agents.policies.learned.policy import LearnedPolicy
from agents.runs import load
from agents.runs.ledger_columns import LedgerColumns
from alma_env import Ledger
from alma_env.errors import how_to_install

from ..fake_runs import fake_run

gymnasium = pytest.importorskip("gymnasium")
sb3 = pytest.importorskip("stable_baselines3")
hub = pytest.importorskip("huggingface_hub")
parquet = pytest.importorskip("pyarrow.parquet")


class _Decisions(gymnasium.Env):
    observation_space = feature_space()
    action_space = gymnasium.spaces.Discrete(2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("policy") / "waiting.zip"
    sb3.PPO("MlpPolicy", _Decisions(), n_steps=2, batch_size=2, device="cpu").save(file)
    return file


@pytest.fixture
def remote(tmp_path, monkeypatch) -> Path:
    """The folder of a Hub; its client has the signatures of the real one, and refuses other arguments."""
    folder = tmp_path / "remote"
    api = create_autospec(hub.HfApi, instance=True)

    def upload(*, repo_id: str, repo_type: str, folder_path: str, **_: object) -> SimpleNamespace:
        shutil.copytree(folder_path, folder / repo_type / repo_id, dirs_exist_ok=True)
        return SimpleNamespace(commit_url=f"https://hub.example/{repo_id}/commit/1")

    def download(repo_id: str, filename: str, *, repo_type: str, revision: str | None) -> str:
        found = folder / repo_type / repo_id / filename
        if not found.exists():
            raise hub.errors.LocalEntryNotFoundError("cannot find the file")
        return str(found)

    def names(repo_id: str, *, repo_type: str) -> list[str]:
        return [".gitattributes", *(path.name for path in (folder / repo_type / repo_id).glob("*"))]

    api.upload_folder.side_effect = upload
    api.list_repo_files.side_effect = names
    monkeypatch.setattr(hub, "HfApi", create_autospec(hub.HfApi, return_value=api))
    monkeypatch.setattr(hub, "hf_hub_download", create_autospec(hub.hf_hub_download, side_effect=download))
    return folder


def test_a_pushed_policy_comes_back_to_the_last_bit_with_a_card(policy, tmp_path, capsys):
    place, back = f"{tmp_path}/published", tmp_path / "back" / "policy.zip"
    assert main(["policy", "push", str(policy), "--to", place]) == 0
    assert main(["policy", "pull", place, "--out", str(back)]) == 0
    assert "runs code of its author" in capsys.readouterr().out
    assert back.read_bytes() == policy.read_bytes()
    card = (tmp_path / "published" / "README.md").read_text()
    assert LearnedPolicy(policy).digest in card
    assert "library_name: stable-baselines3" in card


def test_pushed_runs_come_back_and_their_tables_have_the_same_numbers(tmp_path, capsys):
    runs = [fake_run("sm", wait=5), fake_run("gens", wait=2, seed=1), fake_run("sm", policy={"name": "doubling"})]
    load.pack(runs, tmp_path / "made.jsonl.xz")
    place, back = f"{tmp_path}/published", tmp_path / "back.jsonl.xz"
    assert main(["runs", "push", str(tmp_path / "made.jsonl.xz"), "--to", place]) == 0
    assert main(["runs", "pull", place, "--out", str(back)]) == 0
    assert "3 runs" in capsys.readouterr().out
    found, _ = load.find(back)
    assert [run.config for run in found] == [run.config for run in load.find(tmp_path / "made.jsonl.xz")[0]]

    of_runs, of_ticks = (parquet.read_table(tmp_path / "published" / f"{name}.parquet") for name in ("runs", "ticks"))
    assert of_runs["cer"].to_pylist() == [run.score.cer for run in found]
    assert of_ticks.num_rows == sum(len(run.columns) for run in found)
    for number, run in enumerate(found):
        own = of_ticks.filter([of == number for of in of_ticks["run"].to_pylist()])
        assert own["error"].to_pylist() == list(run.columns.error)
        assert sum(own["comp"].to_pylist()) == run.score.comp
    assert {str(of_ticks.schema.field(name).type) for name in ("declared", "registered")} == {"list<element: string>"}


def test_flops_beyond_the_integers_of_parquet_are_floats(tmp_path):
    large, small = fake_run("sm"), fake_run("sm", seed=1)
    ledger = Ledger([dataclasses.replace(row, flops={"training": 2**62 + 1}) for row in large.ledger])
    large = dataclasses.replace(large, columns=LedgerColumns.from_ledger(ledger))
    recorded_runs.push([large, small], f"{tmp_path}/published")
    of_runs, of_ticks = (parquet.read_table(tmp_path / "published" / f"{name}.parquet") for name in ("runs", "ticks"))
    comps = of_runs["comp"].to_pylist()
    assert of_runs.schema.field("comp").type == "double"
    assert comps == pytest.approx([large.score.comp, small.score.comp])
    assert large.score.comp > 2**63
    assert of_ticks["flops_training"].to_pylist()[0] == 2**62 + 1  # what fits stays exact


def test_the_card_of_runs_names_tables_that_exist(tmp_path):
    recorded_runs.push([fake_run()], f"{tmp_path}/published")
    card = (tmp_path / "published" / "README.md").read_text()
    named = [line.split()[-1] for line in card.splitlines() if "data_files:" in line]
    assert named == ["ticks.parquet", "runs.parquet"]
    assert all((tmp_path / "published" / name).is_file() for name in named)


@pytest.mark.parametrize("what", ["policy", "runs"])
def test_a_push_replaces_its_own_card_and_no_other_readme(what, policy, tmp_path, capsys, monkeypatch):
    load.pack([fake_run()], tmp_path / "made.jsonl.xz")
    pushed = policy if what == "policy" else tmp_path / "made.jsonl.xz"
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "project" / "README.md").write_text("# My project\n\ntags:\n  - alma-env\n")
    assert main([what, "push", str(pushed), "--to", "."]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "README.md: not a card of alma-env" in message
    assert "such as --to ./published" in message
    assert [path.read_text()[:12] for path in (tmp_path / "project").iterdir()] == ["# My project"]
    assert main([what, "push", str(pushed), "--to", ".", "--replace"]) == 2
    assert main([what, "push", str(pushed), "--to", "./published"]) == 0
    assert main([what, "push", str(pushed), "--to", "./published", "--replace"]) == 0


@pytest.mark.parametrize("place", ["me/waiting", "./published"])
def test_a_second_push_replaces_the_first_only_if_the_user_says_so(
    place, policy, remote, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    second = tmp_path / "second.zip"
    sb3.PPO("MlpPolicy", _Decisions(), n_steps=2, batch_size=2, device="cpu", seed=1).save(second)

    def pulled() -> bytes:
        assert main(["policy", "pull", place, "--out", "back.zip"]) == 0
        return (tmp_path / "back.zip").read_bytes()

    assert main(["policy", "push", str(policy), "--to", place]) == 0
    capsys.readouterr()
    assert main(["policy", "push", str(second), "--to", place]) == 2
    message = f"{place}: it has README.md, policy.zip, and a push replaces no file; give another place, or --replace"
    assert message in capsys.readouterr().err
    assert pulled() == policy.read_bytes()
    assert main(["policy", "push", str(second), "--to", place, "--replace"]) == 0
    assert pulled() == second.read_bytes()


def test_runs_that_a_push_would_lose_are_kept_and_runs_of_the_folder_itself_may_be_added_to(tmp_path, capsys):
    place, more = tmp_path / "published", tmp_path / "more.jsonl.xz"
    recorded_runs.push([fake_run(seed=0)], str(place))
    load.pack([fake_run(seed=1)], more)
    assert main(["runs", "push", str(more), "--to", str(place)]) == 2
    assert "it has README.md, runs.jsonl.xz, runs.parquet, ticks.parquet, and a push" in capsys.readouterr().err
    assert [run.run_config.seed for run in load.find(place)[0]] == [0]
    assert main(["runs", "push", str(place), str(more), "--to", str(place)]) == 0
    assert [run.run_config.seed for run in load.find(place)[0]] == [0, 1]


def test_an_interrupted_push_keeps_the_earlier_file(policy, tmp_path, monkeypatch):
    place = tmp_path / "published"
    policies.push(policy, str(place))
    real = shutil.copyfile

    def stops(source, target):
        if Path(target).parent == place:
            Path(target).write_bytes(b"half")
            raise KeyboardInterrupt
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", stops)
    with pytest.raises(KeyboardInterrupt):
        policies.push(policy, str(place), replace=True)
    assert sorted(path.name for path in place.iterdir()) == ["README.md", "policy.zip"]
    assert (place / "policy.zip").read_bytes() == policy.read_bytes()


def test_policies_and_runs_go_to_repositories_of_their_kind(policy, remote, tmp_path):
    assert policies.push(policy, "me/waiting", private=True) == "https://hub.example/me/waiting/commit/1"
    created = hub.HfApi.return_value.create_repo.call_args
    assert created.args == ("me/waiting",)
    assert created.kwargs == {"repo_type": "model", "private": True, "exist_ok": True}
    policies.pull("me/waiting", tmp_path / "policy.zip", revision="main")
    assert (tmp_path / "policy.zip").read_bytes() == policy.read_bytes()

    recorded_runs.push([fake_run()], "me/runs")
    recorded_runs.pull("me/runs", tmp_path / "runs.jsonl.xz")
    assert len(load.find(tmp_path / "runs.jsonl.xz")[0]) == 1
    assert sorted(path.name for path in remote.iterdir()) == ["dataset", "model"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "push", "{policy}", "--to", "folder"], "folder: neither a repository USER/NAME nor a folder"),
        (["policy", "push", "{tmp}/none.zip", "--to", "me/x"], "none.zip': file not found"),
        (["policy", "pull", "{tmp}/empty", "--out", "{tmp}/x.zip"], "policy.zip: no such file; give a folder that"),
        (["policy", "pull", "./x", "--out", "{tmp}/x.pt"], "x.pt: a learned policy is an archive"),
        (["policy", "pull", "./x", "--out", "{tmp}/x.zip", "--revision", "v1"], "the folder ./x has no revisions"),
        (["policy", "pull", "me/none", "--out", "{tmp}/x.zip"], "me/none: cannot find the file; check the name and"),
        (["runs", "pull", "./x", "--out", "{tmp}/x.parquet"], "the name of a packed file must end in .jsonl.xz"),
        (["runs", "push", "{tmp}", "--to", "me/x"], "no ledger.jsonl in or below it"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy_and_nothing_is_written(
    words, message, policy, remote, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([word.format(tmp=tmp_path, policy=policy) for word in words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_the_client_the_command_names_the_extra(policy, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["policy", "push", str(policy), "--to", "me/waiting"]) == 2
    assert how_to_install("hub") in capsys.readouterr().err


def test_schedules_with_different_replay_are_one_column(tmp_path):
    replays = (False, True, "last:2")
    runs = [fake_run(seed=seed, policy={"name": "fixed", "replay": replay}) for seed, replay in enumerate(replays)]
    recorded_runs.push(runs, f"{tmp_path}/published")
    of_runs = parquet.read_table(tmp_path / "published" / "runs.parquet")
    assert sorted(of_runs["replay"].to_pylist()) == ["all", "last:2", "none"]


def test_damaged_runs_replace_no_good_ones(tmp_path, capsys):
    place, out = tmp_path / "published", tmp_path / "good.jsonl.xz"
    recorded_runs.push([fake_run(seed=seed) for seed in range(3)], str(place))
    assert main(["runs", "pull", str(place), "--out", str(out)]) == 0
    good, packed = out.read_bytes(), place / "runs.jsonl.xz"
    lines = lzma.decompress(packed.read_bytes()).splitlines(keepends=True)
    packed.write_bytes(lzma.compress(b"".join([*lines[:2], b"{}\n"])))
    damaged = packed.read_bytes()
    assert main(["runs", "pull", str(place), "--out", str(out)]) == 2
    assert out.read_bytes() == good
    assert main(["runs", "push", str(place), str(out), "--to", str(place)]) == 2
    assert packed.read_bytes() == damaged
    assert "line 3: not a packed run" in capsys.readouterr().err
    assert main(["runs", "pull", str(place), "--out", str(tmp_path / "rest.jsonl.xz")]) == 0  # nothing is replaced
