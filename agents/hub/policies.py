"""A learned policy as a repository for a model: the file that Stable-Baselines3 wrote, and a card."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from agents.hub import repository
from agents.policies.learned.policy import LearnedPolicy

FILE = "policy.zip"


def push(file: Path, place: str, *, private: bool = False, replace: bool = False) -> str:
    """Put a learned policy into a repository or folder; return where it can be seen.

    Raises:
        ValueError: the file is no learned policy, or as `agents.hub.repository.push`.
    """
    if file.suffix == ".npz":
        raise ValueError(f"{file}: a schedule of `alma policy train-schedule`; give an archive of `alma policy train`")
    policy = LearnedPolicy(file)  # refuses a file that no run could play
    return repository.push(place, "model", partial(_write, file, policy, place), private=private, replace=replace)


def pull(place: str, file: Path, *, revision: str | None = None) -> None:
    """Copy the policy of a repository or folder into a file, without opening it: to load it runs code of its author.

    Raises:
        ValueError: the name of the file does not end in ``.zip``, or as `agents.hub.repository.pull`.
    """
    if file.suffix != ".zip":
        raise ValueError(f"--out {file}: a learned policy is an archive; let the name end in .zip")
    repository.pull(place, "model", FILE, file, revision=revision)


def _write(file: Path, policy: LearnedPolicy, place: str, folder: Path) -> None:
    shutil.copyfile(file, folder / FILE)
    card = _CARD.format(digest=policy.digest, place=place)
    (folder / repository.CARD).write_text(card, encoding="utf-8")


_CARD = """---
library_name: stable-baselines3
pipeline_tag: reinforcement-learning
tags:
  - alma-env
  - anytime-learning
  - reinforcement-learning
---

# A learned waiting policy

This policy decides at every tick of a stream of mega-batches whether a learner waits or trains. It was learned with
`alma policy train` of alma-env, a benchmark for anytime learning at macroscale (arXiv 2106.09563).

The record of a run, `config.json`, has the digest of its policy. The digest of this policy is `{digest}`.

```sh
alma policy pull {place} --out policy.zip
alma run Digits-ALMA-v0 --policy policy.zip
```

The file is an archive of Stable-Baselines3, which holds pickled Python objects. To load it runs code of its author:
load it only if you trust the author.
"""
