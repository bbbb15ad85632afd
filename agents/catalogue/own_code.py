"""Agents of your own on the command line: ``--agent my.py:make_agent``.

The function gets the environment, and each option of the run that it has a parameter for. It returns an
`AnytimeAgent`. Its file is a part of the run's identity: a run that was started before the file changed does not
continue.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from traceback import TracebackException
from types import TracebackType
from typing import Any

from agents.catalogue.run_config import leaves
from agents.learners.anytime import AnytimeAgent
from agents.policies import policy_record
from alma_env import AlmaEnv, AlmaError
from alma_env.files import file_digest

_OURS = ("alma_env", "agents", "leaderboard")
_LEARNER = ("predictor", "train", "grow", "restart", "state_dict", "load_state_dict")
_files: set[str] = set()  # files of the user that this process has imported, or tried to


def is_own(agent: str) -> bool:
    """Return whether the id of an agent names a function in a file.

    >>> is_own("my.py:make_agent"), is_own("sm")
    (True, False)
    """
    return ".py" in agent


def make(reference: str, env: AlmaEnv, seed: int, given: Mapping[str, Any]) -> AnytimeAgent:
    """Call the function ``FILE.py:FUNCTION`` and complete the record of its agent.

    Args:
        reference: the file, relative to the working folder, and the function in it.
        env: the environment; ``env.run_seed`` is the seed, as in a verification on the leaderboard.
        seed: seed of the run; the function gets it if it has a parameter ``seed``.
        given: options and hyper-parameters that the user gave; the function must have a parameter for each.

    Raises:
        ValueError: the file or the function does not exist, the function lacks a parameter or requires another one, or
            the configuration of its agent has a value that is not plain data.
        TypeError: the function does not return an `AnytimeAgent`.
    """
    path, name, function = _function(reference)
    _, digest = _module(path)
    if file_digest(path) != digest:
        raise ValueError(
            f"agent {reference}: {path.name} has changed since this process imported it, so the run would have the old "
            "code and the record of the new one; restore the file, or start the command again"
        )
    signature = inspect.signature(function)
    parameters = signature.parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for keyword in given:
        if keyword not in parameters and not takes_all:
            raise ValueError(
                f"agent {reference}: {name} has no parameter {keyword!r}; add it to the function, or leave "
                f"{keyword} out"
            )
    arguments = {**given, **({"seed": seed} if "seed" in parameters else {})}
    try:
        signature.bind(env, **arguments)
    except TypeError as error:
        raise ValueError(
            f"agent {reference}: {name} cannot be called with the environment"
            f"{''.join(f', {keyword}=' for keyword in arguments)} ({error}); write `def {name}(env, …)`, with "
            "a default for each further parameter"
        ) from None
    vars(env)["run_seed"] = seed
    agent = function(env, **arguments)
    if not isinstance(agent, AnytimeAgent):
        raise TypeError(
            f"agent {reference}: {name} returned a {type(agent).__name__}: must be an AnytimeAgent; "
            "give agents.AnytimeAgent your learner and a policy, or call agents.make"
        )
    code = {"file": path.name, "function": name, "digest": digest}
    described = policy_record(agent.policy) or f"{path.name}: {type(agent.policy).__qualname__}"
    policy = agent.config.get("policy") or described  # `agents.make` records None for a lambda
    plain = {name: value for name, value in given.items() if name != "policy"}
    agent.config = {"id": path.stem, **plain, **agent.config, "policy": policy, "seed": seed, "code": code}
    require_plain(agent.config)
    if missing := [name for name in _LEARNER if not hasattr(agent.learner, name)]:
        raise TypeError(
            f"agent {reference}: the learner {type(agent.learner).__name__} has no {', '.join(missing)}; define what "
            "agents.Learner names"
        )
    return agent


def require_plain(config: Mapping[str, Any]) -> None:
    """Raise ValueError if a value in the configuration of an agent cannot be written as JSON."""
    for path, value in leaves(config):
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            remedy = "record agents.policy_record(policy)" if path == "policy" else "record numbers and texts"
            raise ValueError(
                f"config[{path!r}] of type {type(value).__name__}: the configuration of an agent is written as JSON; "
                f"{remedy}"
            ) from None


def _function(reference: str) -> tuple[Path, str, Callable[..., Any]]:
    file, _, name = reference.rpartition(":")
    if not file.endswith(".py") or not name:
        raise ValueError(f"agent {reference}: must be FILE.py:FUNCTION, such as my.py:make_agent")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"agent {reference}: there is no file {path}; `alma new agent {file}` writes one")
    function = getattr(_module(path)[0], name, None)
    if not callable(function):
        raise ValueError(f"agent {reference}: {file} has no function {name!r}; write `def {name}(env): …`")
    return path, name, function


@functools.cache
def _module(path: Path) -> tuple[Any, str]:
    """Import a file once per process; return its module and its digest. It may import other modules of its folder."""
    name = f"own_{path.stem}"
    if name in sys.modules:
        raise ValueError(f"{path}: another file of this name is in use; rename one of the two")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end, where it shadows no package
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    _files.add(str(path))
    digest = file_digest(path)
    try:
        spec.loader.exec_module(module)
        _require_own_modules(path.parent)
    except BaseException:
        del sys.modules[name]
        raise
    return module, digest


def _require_own_modules(folder: Path) -> None:
    """Raise ValueError if Python took a module of this folder from the folder of another file of the user."""
    others = {Path(file).parent for file in _files} - {folder}
    for own in folder.iterdir():
        if own.suffix != ".py" and not (own / "__init__.py").is_file():
            continue  # no module
        file = getattr(sys.modules.get(own.stem), "__file__", None)
        if file is None:
            continue
        found = Path(file).resolve()
        if (found.parent.parent if found.name == "__init__.py" else found.parent) in others:
            raise ValueError(f"{own}: {found} has the same name and is in use; rename one of the two")


def place_of(error: BaseException) -> str | None:
    """Return the last place in a file of the user that an error passed through; None if there is none."""
    own = [call for call in _calls(error.__traceback__) if call.tb_frame.f_code.co_filename in _files]
    if not own:
        return None
    code = own[-1].tb_frame.f_code
    return f"{Path(code.co_filename).name}, line {own[-1].tb_lineno}, in {code.co_qualname}"


def traceback_of(error: BaseException) -> str | None:
    """Return the place and the traceback of an error in a file of the user; None for other errors.

    The traceback begins in the file of the user. An error that a check of this project raises is no error in the file,
    even if the file gave the wrong value: its message has the rule and the remedy.
    """
    if isinstance(error, AlmaError):
        cause = None if error.__cause__ is None else traceback_of(error.__cause__)
        return cause and f"{error}\n{cause}"
    calls = list(_calls(error.__traceback__))
    own = [call for call in calls if call.tb_frame.f_code.co_filename in _files]
    if own and not _is_check(error, calls[-1]):
        place = place_of(error)
    elif isinstance(error, SyntaxError) and error.filename in _files:  # Python has called nothing in the file
        place = f"{Path(error.filename).name}, line {error.lineno}"
    else:
        return None
    return f"{place}:\n{''.join(TracebackException(type(error), error, own[0] if own else None).format())}"


def _calls(call: TracebackType | None) -> Iterator[TracebackType]:
    while call is not None:
        yield call
        call = call.tb_next


def _is_check(error: BaseException, innermost: TracebackType) -> bool:
    """Return whether this project raised the error, and neither the file nor a library did."""
    package = str(innermost.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _OURS and isinstance(error, ValueError | TypeError)
