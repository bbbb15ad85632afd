"""The keywords with which the environment and the learner of a recorded run are made again."""

from __future__ import annotations

from typing import Any

from agents.catalogue.data_facts import known_facts
from agents.catalogue.spec import RunSpec, resolve
from agents.rl.recorded.recording import Recording
from alma_env.registration import PROTOCOLS


def keywords_of(recording: Recording) -> dict[str, Any]:
    """Return the keywords of the environment and the agent that differ from those of the stream's id and its recipe.

    The width is not among them.

    Raises:
        ValueError: the stream is not one of the paper's, or the learner of this version has no such hyper-parameter.
    """
    if recording.env not in PROTOCOLS:
        raise ValueError(
            f"env={recording.env!r}: a run on data of the user's own does not record where they are, so its "
            "environment cannot be made again; use runs on one of the paper's streams, such as Digits-ALMA-v0"
        )
    config = recording.run_config
    facts = known_facts(recording.env, {})
    usual = resolve(RunSpec(recording.env, recording.learner, width=recording.width), facts).agent
    recorded = {**config.agent.record, **config.agent.stage}
    if unknown := sorted(recorded.keys() - usual.record.keys() - usual.stage.keys()):
        raise ValueError(
            f"{unknown[0]}={recorded[unknown[0]]!r}: a recorded run of {recording.learner!r} has this hyper-parameter, "
            "which the learner of this version lacks; record the run again with `alma surrogate record`"
        )
    theirs = {**config.protocol, **recorded}
    names = {**facts.protocol, **usual.record, **usual.stage}
    fixed = {"id", "backbone", "width", "policy", "seed", "engine", "device", "stage", "data"}  # below: the split
    keywords = {
        name: theirs[name]
        for name, value in names.items()
        if name not in fixed and name in theirs and theirs[name] != value
    }
    data, _, split = str(config.protocol.get("data", "")).partition("-")
    return keywords | ({"split": split} if data == "EMNIST" and split else {})
