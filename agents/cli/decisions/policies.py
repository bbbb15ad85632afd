"""``alma policy train``: learn when to train, and run the learned policy on the real streams."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from rich.console import Console

import alma_env
from agents.analysis.labels import differing_paths
from agents.catalogue.data_facts import facts_of
from agents.catalogue.spec import RunSpec, resolve
from agents.cli.options.shared_options import prepare_file, price_word, require_settings, stopped_file
from agents.cli.runs.run_sweep import OPTIONS, run_in_turn
from agents.policies.learned.priced_features import PRICES
from agents.policies.validation import key_values
from agents.rl.environments.keywords import class_of, keywords_of_class
from agents.rl.environments.price_range import PriceRange
from agents.rl.learning.saving import save_policy
from agents.rl.learning.train import train_policy
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.selection import named_recordings, stream_of
from agents.rl.registration import require_trainable
from agents.sweeps import grid
from agents.sweeps.progress import say
from alma_env.registration import ARRAYS_ID

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

_TRAINING_OPTIONS = {
    "env_id": "{} right after `alma policy train`",
    **{name: f"--{name} {{}}" for name in ("algorithm", "steps", "seed", "tensorboard")},
}
_OF_PYTHON = {
    "settings": "keywords of the algorithm can be given in Python only; call `agents.rl.train_policy`",
    "keep": "the command keeps what was learned before Ctrl-C; leave it out",
    "progress": "a terminal shows the progress; leave it out",
}


def train(options: argparse.Namespace, console: Console) -> int:
    """Learn a policy; with --evaluate run it afterwards on the real streams."""
    if not math.isfinite(options.steps):
        raise ValueError(f"--steps {options.steps}: must be a finite number of decisions; the default is 2e6")
    keywords = key_values(options.set)
    require_settings(keywords, _TRAINING_OPTIONS, _OF_PYTHON)
    evaluation = None if options.evaluate is None else _evaluation(options, keywords)
    specs = [] if evaluation is None else grid.expand(evaluation)
    prepare_file(options.out, ".zip", "Stable-Baselines3 writes an archive; let the file name end in .zip")
    model = train_policy(
        options.decision_env,
        algorithm=options.algorithm,
        steps=int(options.steps),
        seed=options.seed,
        progress=console.is_terminal,
        tensorboard=options.tensorboard,
        keep=partial(_keep_stopped, console, options.out),
        **keywords,
    )
    save_policy(model, options.out)
    if evaluation is None:
        words = [_policy_word(options.out, {**keywords, **prices}) for prices in _ends(keywords)]
        say(console, f"{options.out}: alma run … --policy {' '.join(words)}")
        return 0
    say(console, _words(evaluation, options.runs))
    return run_in_turn(specs, options.runs, console)


def _keep_stopped(console: Console, out: Path, model: BaseAlgorithm) -> None:
    file = save_policy(model, stopped_file(out))
    say(console, f"{file}: the policy so far, stopped after {model.num_timesteps:,} decisions")


def _evaluation(options: argparse.Namespace, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The grid that runs the policy on the real streams of its problem, as a table for `grid.expand`."""
    spec = gym.spec(require_trainable(options.decision_env))
    stream = spec.kwargs["stream"] or stream_of(keywords.get("recorded"))
    if stream == ARRAYS_ID:
        raise ValueError(
            f"--evaluate with {stream}: real runs need the data; leave --evaluate out, and run the policy with "
            "`alma run --data PATH --policy FILE`"
        )
    learner, width = str(keywords.get("learner", "sm")), keywords.get("width")
    widths = [] if width is None else list(width) if isinstance(width, list | tuple) else [width]
    if "-Surrogate" in options.decision_env:
        given = str(keywords.get("recorded", stream))
        found = [
            made
            for made in named_recordings(given, decisions=options.decision_env.endswith("-v1"))
            if (made.env, made.learner) == (stream, learner)
        ]
        widths = widths or sorted({made.width for made in found})
        _require_recipe([made for made in found if made.width in widths], stream, learner)
    own = {*keywords_of_class(class_of(options.decision_env)), "width", "episodes_at_once"}
    others = {key: value for key, value in keywords.items() if key not in own}  # of the stream and the learner
    require_settings(others, OPTIONS)
    return {
        "env": stream,
        "agent": learner,
        **({"width": widths} if widths else {}),
        "set": {key: [value] for key, value in others.items()},
        "seeds": options.evaluate,
        "policy": [_policy_word(options.out, {**keywords, **prices}) for prices in _ends(keywords)],
    }


def _words(table: Mapping[str, Any], out: Path) -> str:
    """The command line that runs a grid of `_evaluation`."""
    words = ["alma", "run", table["env"], "--agent", table["agent"], "--out", str(out)]
    words += ["--width", *map(str, table["width"])] if "width" in table else []
    words += ["--set", *(f"{key}={value}" for key, (value,) in table["set"].items())] if table["set"] else []
    return shlex.join([*words, "--seeds", *map(str, table["seeds"]), "--policy", *table["policy"]])


def _ends(keywords: Mapping[str, Any]) -> list[dict[str, float]]:
    """The lowest and the highest prices of a policy that learns at prices."""
    ranges = {name: PriceRange.of(name, keywords[name]) for name in PRICES if name in keywords}
    ends = [{name: getattr(price, end) for name, price in ranges.items()} for end in ("low", "high")]
    return ends[: 1 if ends[0] == ends[1] else 2]


def _policy_word(path: Path, keywords: Mapping[str, Any]) -> str:
    """The value of ``--policy`` for a learned policy, with its prices, or with replay and growth if it decides when."""
    fields = [f"{name}={price_word(keywords[name])}" for name in PRICES if name in keywords]
    if keywords.get("actions", "train") == "train":
        fields += ["replay=true"] * bool(keywords.get("replay")) + ["growth=every"] * bool(keywords.get("grow"))
    return f"{path}:{','.join(fields)}" if fields else str(path)


def _require_recipe(recorded: Sequence[Recording], stream: str, learner: str) -> None:
    usual = resolve(RunSpec(stream, learner), facts_of(alma_env.make(stream))).learner
    for made in recorded:
        theirs = made.run_config.learner
        paths = [path for path in differing_paths([theirs, usual]) if path != "agent.width"]
        if paths:
            differs = ", ".join(f"{path}={theirs.get(path)}" for path in paths)
            raise ValueError(
                f"--evaluate: the recorded runs have {differs}; leave --evaluate out, and run the real stream with "
                f"alma run {stream} --agent {learner} --policy {{FILE}} --set …"
            )
