"""Several processes train like one. The tests start ``torchrun`` on this file, so each rank runs this file."""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import agents
import alma_env
from agents.cli import main
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor, linear
from agents.runs import run_folder
from agents.training import distributed
from agents.training.engines import engine_named
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, train_stage
from alma_env import Ledger
from alma_env.text.stream import tiny_text

TICKS = 2
STAGE = {"epochs": 2, "updates": 4, "warmup": 1, "batch_size": 16, "validation_batch": 64}
LEARNERS: dict[str, dict[str, Any]] = {"gmoe": {"width": 2}, "ens": {"width": 1, "members": 2}}
IMAGE_LEARNERS: dict[str, dict[str, Any]] = {"ens": {"members": 2}, "gmoe": {}}


def text(folder: Path) -> dict[str, Any]:
    """Write some of the text that comes with the package for all ranks, and return a small protocol."""
    source = bz2.decompress(tiny_text()[0].read_bytes()).decode()
    files = {}
    for name, start, characters in (("train", 0, 6_000), ("valid", 6_000, 500), ("test", 7_000, 500)):
        path = folder / f"{name}.txt"
        if not path.exists():
            path.write_text(source[start : start + characters])
        files[name] = str(path)
    protocol = {"ticks": TICKS, "vocabulary_size": 300, "sequence_length": 32, "cache": str(folder / "cache")}
    return {**files, **protocol}


def run_all(folder: Path, accumulation: int) -> dict[str, Ledger]:
    """Return the ledger of each learner, with `accumulation` parts per mini-batch in this process."""
    env = alma_env.make("Text-ALMA-v0", **text(folder))
    ledgers = {}
    for id, keywords in LEARNERS.items():
        agent = agents.make(id, env, device="cpu", accumulation=accumulation, **keywords, **STAGE)
        ledgers[id] = agents.run(env, agent, 0)
    digits = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    for id in IMAGE_LEARNERS:
        ledgers[f"digits {id}"] = agents.run(digits, image_learner(id, digits, accumulation), 0)
    return ledgers


def image_learner(id: str, env: alma_env.AlmaEnv, accumulation: int, **keywords: Any) -> agents.AnytimeAgent:
    settings = {"epochs": 2, "updates": 4, "batch_size": 16, "accumulation": accumulation}
    return agents.make(id, env, width=8, device="cpu", **settings, **IMAGE_LEARNERS[id], **keywords)


class Experts(torch.nn.Module):
    """A linear layer for dark images, one for bright images, and one that is never used."""

    cost_depends_on_data = True

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.experts = torch.nn.ModuleList(linear(4, 3, generator) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = x.new_zeros(len(x), 3)
        kinds = (x.mean(1) > 0).int()
        for kind, expert in enumerate(self.experts):
            if (rows := (kinds == kind).nonzero().flatten()).numel():
                logits = logits.index_copy(0, rows, expert(x[rows]))
        return logits


def experts_weights(accumulation: int) -> list[float]:
    """Return the weights of three experts after a stage in which some have no example in a part, or none at all."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(16, 4, generator=generator), torch.randint(0, 3, (16,), generator=generator)
    x[:13] -= 1
    data, body = Examples(x, y), Experts()
    settings = StageSettings(epochs=3, batch_size=8, accumulation=accumulation, weight_decay=0.1)
    order = torch.Generator().manual_seed(2)
    predictor = Predictor(torch.nn.Identity(), body)
    generators = StageGenerators(order, torch.Generator())
    train_stage(predictor, data, data, settings, generators, engine=engine_named("plain"))
    return torch.nn.utils.parameters_to_vector(body.parameters()).tolist()


def error_of(call: Callable[[], object]) -> str:
    """Return the error that the call raises, as text."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def stage_error(body: torch.nn.Module, settings: StageSettings) -> str:
    """Return the error that a stage on 32 images raises."""
    x = torch.zeros(32, 3, 32, 32, dtype=torch.uint8)
    data = Examples(x, torch.zeros(32, dtype=torch.int64))
    predictor = Predictor(Normalize(255, (0.5,), (0.25,)), body)
    generators = StageGenerators(torch.Generator(), torch.Generator())
    return error_of(lambda: train_stage(predictor, data, data, settings, generators, engine=engine_named("plain")))


def errors() -> dict[str, Any]:
    """Return the errors of what two ranks cannot do."""
    mlp = MLP(3072, 4, 10, generator=torch.Generator())
    vgg19 = VGG19(2, 10, generator=torch.Generator())
    digits = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    first = distributed.rank() == 0

    def fail() -> None:
        raise OSError("no room on the disk")

    return {
        "parts": stage_error(mlp, StageSettings(epochs=1, batch_size=9, accumulation=3)),
        "remainder": stage_error(mlp, StageSettings(epochs=1, batch_size=18, accumulation=3)),
        "BatchNorm": stage_error(vgg19, StageSettings(epochs=1, batch_size=16)),
        "native": error_of(lambda: agents.make("sm", digits, engine="native")),
        "different": error_of(lambda: distributed.require_same("one" if first else "other", "the predictor")),
        "first": error_of(lambda: distributed.from_first(fail)),
        "shares": [[part.start, part.stop] for part in (distributed.share(0, 7), distributed.share(4, 8))],
    }


class Stopped(Exception):
    """Simulates the end of all processes in the middle of a run."""


def stopped_and_continued(folder: Path) -> Ledger:
    """Return the ledger of a run that was stopped in its last stage and continued from the checkpoint before it.

    The run is the one with images: the failed run of the command line continues with text.
    """
    env = alma_env.make("Digits-ALMA-v0", ticks=TICKS)
    run_folder.CHECKPOINT_SECONDS = 0.0

    def stop(epoch: int) -> None:
        if env.tick == TICKS - 1:
            raise Stopped

    path = folder / f"run-{distributed.rank()}"  # a different path per rank shows which ranks write
    with contextlib.suppress(Stopped):
        agents.run(env, image_learner("gmoe", env, 2, on_epoch=stop), 0, path)
        raise AssertionError("the run should have been stopped")
    return agents.run(env, image_learner("gmoe", env, 2), 0, path)


def arguments(folder: Path) -> list[str]:
    """Return the arguments of ``alma`` that run the growing learner."""
    settings = {**text(folder), **STAGE, "accumulation": 2}
    agent = ["--agent", "gmoe", "--width", "2", "--wait", "1", "--device", "cpu", "--out", str(folder / "out")]
    return ["run", "Text-ALMA-v0", *agent, "--set", *(f"{name}={value}" for name, value in settings.items())]


def fail_on_the_second_rank(folder: Path) -> int:
    """Run the command line, with an error on one rank after tick 1."""
    run_folder.CHECKPOINT_SECONDS = 0.0
    write = run_folder.RunFolder.write

    def write_or_fail(self: run_folder.RunFolder, row: alma_env.Row) -> None:
        write(self, row)
        if row.tick == 1 and distributed.rank() == 1:
            raise ValueError("an error on one rank")

    run_folder.RunFolder.write = write_or_fail  # type: ignore[method-assign]
    return main(arguments(folder))


def continue_and_report(folder: Path) -> int:
    """Run the command line again, then write everything that the tests compare."""
    with distributed.process_group("cpu"):
        status = main(arguments(folder))
        answers = {
            "ledgers": {name: ledger.to_json() for name, ledger in run_all(folder, 2).items()},
            "continued": stopped_and_continued(folder).to_json(),
            "experts": experts_weights(2),
            "errors": errors(),
        }
        rank = distributed.rank()
    if sys.platform == "linux":
        answers["threads"] = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    answers["again"] = error_of(distributed.process_group("cpu").__enter__)
    (folder / f"answers-{rank}.json").write_text(json.dumps(answers))
    return status


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this file on two ranks, which must end in time."""
    root = Path(__file__).parents[3]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
    )


def rows_of(ledger: str) -> list[alma_env.Row]:
    """Return the rows of a ledger in JSON, without their seconds."""
    return [dataclasses.replace(row, seconds=0.0) for row in Ledger.from_json(ledger)]


pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="PyTorch was built without Gloo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of text, runs and answers of the ranks."""
    return tmp_path_factory.mktemp("ranks")


@dataclasses.dataclass(frozen=True)
class Failed:
    """A run that ended with an error on one rank: its messages, and its ledger up to the error."""

    returncode: int
    stderr: str
    ledger: str


@pytest.fixture(scope="module")
def failed(folder: Path) -> Failed:
    """Run the command with an error."""
    done = torchrun("fail", str(folder))
    return Failed(done.returncode, done.stderr, "".join(file.read_text() for file in folder.rglob("ledger.jsonl")))


@pytest.fixture(scope="module")
def answers(folder: Path, failed: Failed) -> list[dict[str, Any]]:
    """Run the command again; return the answers of each rank, and the output of the command."""
    done = torchrun("continue", str(folder))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"answers-{n}.json").read_text()) | {"printed": done.stdout} for n in (0, 1)]


@pytest.fixture(scope="module")
def single(folder: Path, failed: Failed) -> dict[str, Ledger]:
    """Return the ledgers of one process with twice the accumulation."""
    return run_all(folder, 4)


LEDGERS = [*LEARNERS, *(f"digits {id}" for id in IMAGE_LEARNERS)]


@pytest.mark.parametrize("name", LEDGERS)
def test_two_ranks_give_the_curve_of_one_process_with_twice_the_accumulation(answers, single, name):
    ours = rows_of(answers[0]["ledgers"][name])
    assert [row.error for row in ours] == pytest.approx([row.error for row in single[name]], rel=1e-5)
    assert [row.parameters for row in ours] == [row.parameters for row in single[name]]


@pytest.mark.parametrize("name", LEDGERS)
def test_the_flops_of_all_ranks_together_equal_those_of_one_process(answers, single, name):
    ours = rows_of(answers[0]["ledgers"][name])
    assert [row.flops for row in ours] == [row.flops for row in single[name]]
    assert [row.paper_flops for row in ours] == [row.paper_flops for row in single[name]]
    assert all(row.flops["training"] > 0 < row.flops["validation"] for row in ours[1:])
    assert any("growth" in row.flops for row in ours) == name.endswith("gmoe")


def test_all_ranks_have_the_same_weights_and_the_same_ledger(answers):
    one, two = (rank["ledgers"] for rank in answers)
    for name in LEDGERS:
        assert rows_of(one[name]) == rows_of(two[name])
        assert len({row.digest for row in rows_of(one[name])}) == TICKS + 1


def test_experts_without_examples_train_as_in_one_process(answers):
    for rank in answers:
        assert rank["experts"] == pytest.approx(experts_weights(4), rel=1e-5)
    assert experts_weights(4)[30:] == torch.nn.utils.parameters_to_vector(Experts().parameters()).tolist()[30:]


def test_a_stopped_run_continues_to_the_same_ledger(answers):
    for rank in answers:
        assert rows_of(rank["continued"]) == rows_of(rank["ledgers"]["digits gmoe"])


@pytest.mark.usefixtures("answers")
def test_only_the_first_rank_writes(folder):
    assert sorted(file.name for file in folder.glob("run-0/*")) == [
        "checkpoint.pt",
        "config.json",
        "ledger.jsonl",
        "lock",
        "stages.jsonl",
    ]
    assert not (folder / "run-1").exists()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("parts", "ValueError: a mini-batch of 9 examples with 2 ranks, accumulation=3: .* a multiple of 6"),
        ("remainder", "ValueError: a mini-batch of 14 examples .* a multiple of 6, and set updates"),
        ("BatchNorm", "ValueError: VGG19 with 2 ranks: .*BatchNorm.* train it in one process"),
        ("native", "ValueError: engine='native': .*one process.*engine='auto'"),
        ("different", r"RanksDifferError: the predictor differs between ranks \(one, other\)"),
    ],
)
def test_what_ranks_cannot_do_raises_on_each_rank(answers, case, message):
    for rank in answers:
        assert re.match(message, rank["errors"][case])


def test_an_error_of_from_first_raises_on_every_rank(answers):
    one, two = (rank["errors"]["first"] for rank in answers)
    assert one == "OSError: no room on the disk"
    assert two == "OtherRankError: the first rank failed: OSError: no room on the disk"


def test_a_second_process_group_raises_instead_of_waiting(answers):
    for rank in answers:
        assert rank["again"].startswith("RuntimeError: process_group(): this process has already left the other ranks")


def test_the_shares_of_the_ranks_cover_the_range(answers):
    assert [rank["errors"]["shares"] for rank in answers] == [[[0, 3], [4, 6]], [[3, 7], [6, 8]]]


def test_an_error_on_one_rank_ends_both(failed):
    assert failed.returncode != 0
    assert "alma run on rank 1: an error on one rank" in failed.stderr
    assert [row.tick for row in rows_of(failed.ledger)] == [0, 1]


def test_the_same_command_continues_the_run(folder, failed, answers):
    (ledger,) = folder.glob("out/**/ledger.jsonl")
    assert ledger.read_text().startswith(failed.ledger)
    assert rows_of(ledger.read_text()) == rows_of(answers[0]["ledgers"]["gmoe"])
    assert json.loads((ledger.parent / "config.json").read_text())["ranks"] == 2
    assert answers[0]["printed"].count("Runs are in") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has named threads")
def test_no_threads_stay_after_the_process_group(answers):
    for answer in answers:
        assert not [name for name in answer["threads"] if "gloo" in name]


def test_a_single_process_is_the_first_of_one_rank():
    assert (distributed.ranks(), distributed.rank()) == (1, 0)
    assert distributed.share(3, 9) == slice(3, 9)
    assert distributed.from_first(lambda: 7) == 7
    with distributed.process_group():
        assert not torch.distributed.is_initialized()


if __name__ == "__main__":
    sys.exit({"fail": fail_on_the_second_rank, "continue": continue_and_report}[sys.argv[1]](Path(sys.argv[2])))
