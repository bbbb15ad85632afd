"""The environment: it releases mega-batches, has the deployed predictor answer at every tick, and keeps the ledger."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from alma_env.ensemble import Ensemble
from alma_env.ensemble_scoring import Scored, score_ensemble
from alma_env.ledger import Ledger, Row
from alma_env.meter import Charge, Meter
from alma_env.metered import require_metered
from alma_env.predictor import (
    Answer,
    Fingerprint,
    answer,
    fingerprint,
    freeze,
    unwrap,
)
from alma_env.spaces import PredictorSpace
from alma_env.stream import Stream
from alma_env.text import TextStream
from alma_env.text_corpus import TextCorpus

if TYPE_CHECKING:
    from alma_env.data import DataSet

Observation = dict[str, dict[str, np.ndarray[Any, Any]]]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


def paper_flops(charge: Charge) -> int:
    """Training cost by the paper's rule of thumb, so that closed forms can be checked.

    A training step is taken to cost three forward passes, that is 6 FLOPs per forward multiply-add on training
    examples, although the first layer needs no input gradient; growth is added as executed, validation is left out.
    """
    return 3 * charge.forward.get("training", 0) + charge.flops.get("growth", 0)


def _require_numbers(whole: Mapping[str, object], real: Mapping[str, object]) -> None:
    for names, kind, words, example in ((whole, Integral, "a whole number", 50), (real, Real, "a number", 0.1)):
        for name, value in names.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise TypeError(f"{name}={value!r}: must be {words}, for example {name}={example}")


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


@dataclass(frozen=True)
class Answered:
    """What a step or a reset would enter into the ledger, found out before anything is changed.

    Attributes:
        tick: the tick that it answers.
        answer: its error and cost.
        mark: the fingerprint of the predictor that is new; None where the one before, or the uniform guess, answers.
        scored: how its members answered, where it is an ensemble whose members are kept.
        over_budget: a budget is broken, so that the one before stays to the end.
    """

    tick: int
    answer: Answer
    mark: Fingerprint | None = None
    scored: Scored | None = None
    over_budget: bool = False


@dataclass(frozen=True)
class Beginning:
    """An episode that could begin: see ``AlmaEnv.consider_reset``."""

    seed: int | None
    stream: Stream | TextStream
    answered: Answered
    clock: float


class AlmaEnv(gym.Env[Observation, "nn.Module | None"]):
    """Anytime learning at macroscale (Caccia, Xu, Ott, Ranzato, Denoyer; arXiv 2106.09563, section 3).

    A data set arrives as a stream of ``B`` equal mega-batches, all drawn from one distribution. After each arrival (a
    *tick*) the learner may wait, or train on what it has gathered; either way it must answer at every tick, on a
    hidden test set. It is judged on the whole curve: the cumulative error rate, the parameters and the FLOPs.

    ## Action Space
    ``PredictorSpace``: the action is the predictor deployed at this tick, any ``torch.nn.Module`` that maps a batch of
    raw inputs to floating-point logits of shape ``(batch, classes)``, or ``None`` to keep the one deployed before; for
    text, token ids ``(batch, T)`` to logits ``(batch, T, V)`` of the token after each. The environment answers with a
    copy of it in eval mode; the module stays the learner's own. A predictor whose content has not changed is not run
    again.

    ## Observation Space
    The mega-batch that has just arrived, as NumPy arrays: ``{"train": {"x", "y"}, "valid": {"x", "y"}}``; images are
    uint8 ``(n, C, H, W)``, one's own arrays uint8 or float32 ``(n, ...)``, labels int64 ``(n,)``. All mega-batches have
    the same size; 90 % of each is ``train`` and 10 % is ``valid``. After the last tick nothing new arrives and the last
    mega-batch is returned once more, since a Gymnasium observation must lie in the space. Of text, ``x`` and ``y`` are
    token ids, int32 ``(n, T)`` in ``0..V-1``, memory-mapped, and ``y`` is the token after each of ``x``; all of the
    mega-batch is ``train``, and ``valid`` is the same held-out set at every tick. Their n depends on the seed, so their
    space is a ``Sequence``.

    ## Rewards
    Minus the error of the tick: the fraction of wrong answers on the test set, or for text the perplexity per token.
    The return of an episode is minus the cumulative error of ticks 1..B, also when a budget ends it early.

    ## Starting State
    ``reset(seed=s)`` fixes the stream: the mega-batches are a pure function of the data set, ``s`` and ``B``. Tick 0 is
    the answer before any data: the uniform guess (error 1 − 1/C, or perplexity V; no parameters), or the untrained
    module given as ``reset(options={"predictor": module})``. Then D_1 is released.

    ## Episode End
    *Termination:* after tick ``B``. *Truncation:* at the tick at which a budget is broken; the predictor deployed
    before then stays for all remaining ticks, these are scored and entered into the ledger, and their errors are in the
    reward of the last step.

    ## Arguments
    * ``data``: the ``DataSet`` or ``TextCorpus`` that is streamed. ``alma_env.make(id, ...)`` loads it by name.
    * ``ticks``: the number of mega-batches ``B``.
    * ``valid_fraction``: the part of each mega-batch set aside for validation, 0.1; not for text.
    * ``partition``: ``"alma"``, or ``"continuum"``: the partition of ``continuum.scenarios.ALMA`` with the same seed;
      not for text.
    * ``flops_budget``: most FLOPs that may be spent over the episode, or None.
    * ``parameter_budget``: most parameters that a deployed predictor may have, or None.
    * ``evaluation_batch_size``: test examples per forward pass; part of the protocol, since float sums depend on it.

    ## Metering
    Training happens inside ``with env.meter:``. A predictor whose parameters changed anywhere else is refused with
    ``UnmeteredTrainingError``; ``env.meter.declare`` takes the charge of learners that compute outside of PyTorch.
    The info holds what the learner may know: ``tick``, ``ticks``, ``error``, ``parameters``, ``comp`` and ``refused``.
    ``env.ledger`` holds one row per tick, and ``env.ledger.score()`` CER, Mem and Comp.

    ## Version History
    * v0: first release.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as gymnasium.Env declares it
    action_space: PredictorSpace

    def __init__(
        self,
        data: DataSet | TextCorpus,
        ticks: int,
        *,
        valid_fraction: float = 0.1,
        partition: str = "alma",
        flops_budget: float | None = None,
        parameter_budget: int | None = None,
        evaluation_batch_size: int = 500,
    ) -> None:
        _require_numbers(
            {"ticks": ticks, "evaluation_batch_size": evaluation_batch_size, "parameter_budget": parameter_budget},
            {"valid_fraction": valid_fraction, "flops_budget": flops_budget},
        )
        for name, budget in (("flops_budget", flops_budget), ("parameter_budget", parameter_budget)):
            if budget is not None and not budget > 0:
                raise ValueError(f"{name}={budget}: a budget must be positive; use None for no budget")
        if evaluation_batch_size < 1:
            raise ValueError(
                f"evaluation_batch_size={evaluation_batch_size}: at least 1 example is needed per forward pass"
            )
        self.data = data
        # Plain numbers, as a saved state and the record of a run hold them.
        self.ticks = ticks = int(ticks)
        self.valid_fraction = valid_fraction = _plain(valid_fraction)
        self.partition = partition
        self.flops_budget = _plain(flops_budget)
        self.parameter_budget = _plain(parameter_budget)
        self.evaluation_batch_size = int(evaluation_batch_size)

        self.meter = Meter()
        self.ledger = Ledger()
        self._stream: Stream | TextStream | None = None
        self.stream_seed: int | None = None
        self._deployed: Fingerprint | None = None
        self._known: set[str] = set()  # content of all tensors and arrays that were deployed in this episode
        self._total_at_deployment = self._declared_at_deployment = 0
        self._steady_flops: dict[tuple[str, int, int], float] = {}  # inference FLOPs, by structure
        self._scored: Scored | None = None  # the members of the ensemble that was scored last
        self._scored_on: Stream | TextStream | None = None
        self._clock = time.perf_counter()

        if isinstance(data, TextCorpus):
            if (valid_fraction, partition) != (0.1, "alma"):
                raise ValueError(
                    f"valid_fraction={valid_fraction}, partition={partition!r} with text: its validation set is given "
                    "and its documents are permuted by seed; leave both out"
                )
            data.check(ticks)  # at once, and not at the first reset
            parts: dict[str, gym.Space[Any]] = {"train": data.part_space(), "valid": data.part_space()}
        else:
            # Made here, too, for the same reason.
            self._stream = Stream(data, ticks, seed=0, valid_fraction=valid_fraction, scheme=partition)
            train, valid = self._stream.indices(1)
            parts = {"train": data.part_space(len(train)), "valid": data.part_space(len(valid))}
        self.action_space = PredictorSpace(data.input_shape, data.classes, per_token=isinstance(data, TextCorpus))
        self.observation_space = cast("gym.Space[Observation]", spaces.Dict(parts))

    @property
    def tick(self) -> int:
        """The last tick that has been answered: 0 after ``reset``, B at the end; −1 before the first ``reset``."""
        return len(self.ledger) - 1

    @property
    def done(self) -> bool:
        """Whether every tick has its answer."""
        return self.tick == self.ticks

    @property
    def examples_per_tick(self) -> int:
        """Training examples in each mega-batch; for text, sequences, whose number depends on the stream's seed.

        Before the first ``reset`` they are those of the text's stream of seed 0, which is made where it is not cached.
        """
        if self._stream is None:
            self._stream = self._make_stream(0)
        if isinstance(self._stream, TextStream):
            return self._stream.sequences
        return len(self._stream.indices(1)[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new stream: score tick 0 and release D_1.

        Args:
            seed: seed of the stream; without it one is drawn from the environment's own generator.
            options: ``{"predictor": module}`` has an untrained module answer at tick 0.

        Raises:
            ValueError: an unknown option, or a predictor over ``parameter_budget``.
            PredictorError: the untrained predictor cannot be scored.
        """
        options = dict(options or {})
        predictor = options.pop("predictor", None)
        if options:
            raise ValueError(f"options {sorted(options)}: the only option of reset is 'predictor'")
        return self.begin(self.consider_reset(seed, predictor))

    def consider_reset(self, seed: int | None = None, predictor: nn.Module | None = None) -> Beginning:
        """The first half of ``reset``: all that may be refused is refused here, and nothing is changed.

        For those who take several environments through one stream (``alma_env.arena``): either all begin, or none.
        """
        if predictor is not None:
            self._check_action(predictor)
            predictor = unwrap(predictor)
        clock = time.perf_counter()
        # A seed is looked up before it is drawn.
        drawn = int(copy.deepcopy(self.np_random).integers(2**31)) if seed is None else seed
        stream = self._make_stream(drawn)
        if predictor is None:
            return Beginning(seed, stream, Answered(0, Answer(self.data.task.guess, inference_flops=0.0)), clock)
        mark = fingerprint(predictor)
        if self._over_parameter_budget(mark):
            raise ValueError(
                f"predictor with {mark.parameters} parameters: parameter_budget={self.parameter_budget}; "
                "start with a smaller one, or raise the budget"
            )
        return Beginning(seed, stream, self._answer(0, predictor, mark, stream, {}), clock)

    def begin(self, beginning: Beginning) -> tuple[Observation, dict[str, Any]]:
        """The second half of ``reset``: begin what was considered."""
        super().reset(seed=beginning.seed)
        self.stream_seed = beginning.seed if beginning.seed is not None else int(self.np_random.integers(2**31))
        self._stream = beginning.stream
        self._clock = beginning.clock
        self.meter.reset()
        self.ledger = Ledger()
        self._deployed = None
        self._known = set()
        self._steady_flops = {}
        self._total_at_deployment = self._declared_at_deployment = 0
        self._deploy(beginning.answered)
        self._enter(beginning.answered.answer, Charge(), refused=False)
        return self.observation(), self.info()

    def step(self, action: nn.Module | None) -> Step:
        """Answer at the tick of the mega-batch that was observed last, and release the next one.

        Args:
            action: the predictor to deploy, or None to keep the one deployed before.

        Raises:
            TypeError: the action is neither a module nor None.
            PredictorError: the predictor cannot be scored. The episode is as it was before the call: deploy
                something else at the same tick.
            UnmeteredTrainingError: its parameters changed without a charge; the episode is as it was, too.
            RuntimeError: there is no tick to answer: call ``reset``.
        """
        return self.commit(self.consider(action))

    def consider(self, action: nn.Module | None, *, tick_budget: float | None = None) -> Answered:
        """The first half of ``step``: all that may be refused is refused here, and nothing is changed.

        For those who take several environments through one stream (``alma_env.arena``): either all step, or none.

        Args:
            action: as for ``step``, with the same errors.
            tick_budget: most FLOPs that may be charged at this tick, or None. Breaking it is breaking a budget.
        """
        if self.tick < 0 or self.done:
            state = "has not begun" if self.tick < 0 else "is over"
            raise RuntimeError(f"step() at tick {self.tick}: the episode {state}; call reset() first")
        self._check_action(action)
        with self.meter.paused():
            return self._consider(action, tick_budget)

    def commit(self, answered: Answered) -> Step:
        """The second half of ``step``: enter what was considered.

        Raises:
            RuntimeError: it was considered at another tick.
        """
        if answered.tick != self.tick + 1:
            raise RuntimeError(
                f"commit() of an answer to tick {answered.tick} at tick {self.tick + 1}: consider the action anew"
            )
        charge = self.meter.take()
        if answered.over_budget:
            return self._finish_over_budget(charge)
        self._deploy(answered)
        self._enter(answered.answer, charge, refused=False)
        return self.observation(), -answered.answer.error, self.done, False, self.info()

    def megabatch(self, tick: int) -> Observation:
        """Mega-batch D_tick again, if it has arrived: once tick t is answered, D_1 .. D_{t+1} have.

        Raises:
            ValueError: it has not arrived yet, or there is no such mega-batch.
        """
        arrived = min(self.tick + 1, self.ticks)
        if not 1 <= tick <= arrived:
            raise ValueError(
                f"tick={tick}: mega-batches 1 to {arrived} have arrived; step() releases the next one"
                if arrived
                else f"tick={tick}: nothing has arrived yet; call reset() first"
            )
        assert self._stream is not None
        return self._stream.megabatch(tick)

    def observation(self) -> Observation:
        """The mega-batch that arrived last: D_{t+1} once tick t is answered; after tick B, D_B again."""
        return self.megabatch(min(self.tick + 1, self.ticks))

    @torch.inference_mode(False)
    def validation_error(self, predictor: nn.Module) -> float:
        """Error on the validation parts of all mega-batches of the episode's stream, those to come included.

        For what is built around the environment, such as the tuning of a policy, and not for the learner: it is asked
        about data that has not arrived. Nothing is charged, and the test set is not looked at.

        Raises:
            PredictorError: the predictor cannot be scored.
            RuntimeError: there is no episode: call ``reset``.
        """
        if self.tick < 0:
            raise RuntimeError("validation_error() before reset(): there is no stream yet; call reset() first")
        assert self._stream is not None
        x, y = self._stream.validation
        with self.meter.paused():
            frozen = freeze(unwrap(predictor))
            return answer(frozen, x, y, task=self.data.task, batch_size=self.evaluation_batch_size).error

    def _consider(self, action: nn.Module | None, tick_budget: float | None) -> Answered:
        tick, kept = len(self.ledger), self._kept_answer()
        over_budget = Answered(tick, kept, over_budget=True)
        if self.flops_budget is not None and self.meter.total > self.flops_budget:
            return over_budget
        if tick_budget is not None and self.meter.total - self.ledger.comp > tick_budget:
            return over_budget
        if action is None:
            return Answered(tick, kept)
        action = unwrap(action)
        mark = fingerprint(action)
        if mark.same_as(self._deployed):
            return Answered(tick, kept)
        require_metered(action, mark, self.meter, self._known, self._total_at_deployment, self._declared_at_deployment)
        if self._over_parameter_budget(mark):
            return over_budget
        assert self._stream is not None
        return self._answer(tick, action, mark, self._stream, self._steady_flops)

    def _deploy(self, answered: Answered) -> None:
        """Have what was considered answer from now on, and remember what spares work when it is changed."""
        mark = answered.mark
        if mark is None:
            return
        self._deployed = mark
        self._known |= {*mark.tensors, *mark.arrays}
        self._total_at_deployment = self.meter.total
        self._declared_at_deployment = self.meter.declared_total
        if answered.scored is not None:
            self._scored, self._scored_on = answered.scored, self._stream
        elif mark.structure is not None:
            kind = (mark.structure, mark.parameters, mark.buffers)
            if answered.answer.steady:
                self._steady_flops[kind] = answered.answer.inference_flops
            else:
                self._steady_flops.pop(kind, None)

    def _finish_over_budget(self, charge: Charge) -> Step:
        """The predictor before stays deployed: score all remaining ticks with it and end the episode."""
        kept = self._kept_answer()
        reward = 0.0
        while not self.done:
            self._enter(kept, charge, refused=True)
            charge = Charge()
            reward -= kept.error
        return self.observation(), reward, False, True, self.info()

    @torch.inference_mode(False)
    def _answer(
        self,
        tick: int,
        predictor: nn.Module,
        mark: Fingerprint,
        stream: Stream | TextStream,
        steady_flops: Mapping[tuple[str, int, int], float],
    ) -> Answered:
        x, y = stream.test
        if isinstance(predictor, Ensemble) and mark.parts:
            # Of text, each seed has an evaluation set of its own.
            same_test = not isinstance(stream, TextStream) or stream == self._scored_on
            scored = score_ensemble(
                predictor,
                mark,
                x,
                y,
                task=self.data.task,
                batch_size=self.evaluation_batch_size,
                before=self._scored if same_test else None,
            )
            if scored is not None:
                return Answered(tick, scored[0], mark, scored[1])
        kind = None if mark.structure is None else (mark.structure, mark.parameters, mark.buffers)
        answered = answer(
            freeze(predictor),
            x,
            y,
            task=self.data.task,
            batch_size=self.evaluation_batch_size,
            steady_flops=None if kind is None else steady_flops.get(kind),
        )
        return Answered(tick, answered, mark)

    def _kept_answer(self) -> Answer:
        last = self.ledger[-1]
        return Answer(last.error, last.inference_flops)

    def _enter(self, answered: Answer, charge: Charge, *, refused: bool) -> None:
        now = time.perf_counter()
        deployed = self._deployed
        self.ledger.append(
            Row(
                tick=len(self.ledger),
                error=answered.error,
                parameters=deployed.parameters if deployed is not None else 0,
                buffers=deployed.buffers if deployed is not None else 0,
                inference_flops=answered.inference_flops,
                flops=dict(charge.flops),
                paper_flops=paper_flops(charge),
                declared=tuple(charge.declared),
                digest=deployed.digest if deployed is not None else "",
                refused=refused,
                seconds=now - self._clock,
            )
        )
        self._clock = now

    def info(self) -> dict[str, Any]:
        """What the learner may know of its last answer: the info that ``step`` returned."""
        last = self.ledger[-1]
        return {
            "tick": last.tick,
            "ticks": self.ticks,
            "error": last.error,
            "parameters": last.parameters,
            "comp": self.ledger.comp,
            "refused": last.refused,
        }

    def _make_stream(self, seed: int) -> Stream | TextStream:
        if isinstance(self.data, TextCorpus):
            return self.data.stream(self.ticks, seed)
        return Stream(self.data, self.ticks, seed=seed, valid_fraction=self.valid_fraction, scheme=self.partition)

    def _check_action(self, action: object) -> None:
        if not self.action_space.contains(action):
            raise TypeError(
                f"action of type {type(action).__name__}: deploy a torch.nn.Module, or None to keep the one before"
            )

    def _over_parameter_budget(self, mark: Fingerprint) -> bool:
        return self.parameter_budget is not None and mark.parameters > self.parameter_budget

    def state_dict(self) -> dict[str, Any]:
        """Where the episode stands: the stream's seed, the ledger and the fingerprint of what is deployed.

        Indices and numbers only, no data and no weights; plain JSON values.

        Raises:
            RuntimeError: charges have been made since the last tick; save between ``step`` and the next training.
        """
        if self.tick < 0:
            raise RuntimeError("state_dict() before reset(): there is no episode to save; call reset() first")
        if self.meter.total != self.ledger.comp:
            raise RuntimeError(
                f"{self.meter.total - self.ledger.comp} FLOPs charged since tick {self.tick}: "
                "the state is saved between ticks; call step() first"
            )
        return {
            "protocol": self.protocol(),
            "stream_seed": self.stream_seed,
            "generator": self.np_random.bit_generator.state,
            "ledger": self.ledger.to_json(),
            "deployed": None if self._deployed is None else self._deployed.to_dict(),
            "known": sorted(self._known),
            "meter": self.meter.state_dict(),
            "total_at_deployment": self._total_at_deployment,
            "declared_at_deployment": self._declared_at_deployment,
            "steady_flops": [[*kind, flops] for kind, flops in self._steady_flops.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; ``observation()`` then gives the mega-batch that awaits its answer.

        Raises:
            ValueError: the state was saved by an environment with another data set or protocol.
        """
        theirs, ours = state["protocol"], self.protocol()
        for name, value in ours.items():
            if theirs.get(name) != value:
                raise ValueError(
                    f"{name}={theirs.get(name)!r} in the saved state, {value!r} here: an episode goes on only in an "
                    "environment of the same data and protocol; make one with the saved values"
                )
        self.stream_seed = int(state["stream_seed"])
        self._stream = self._make_stream(self.stream_seed)
        self.np_random.bit_generator.state = state["generator"]
        self.ledger = Ledger.from_json(state["ledger"])
        self._deployed = None if state["deployed"] is None else Fingerprint.from_dict(state["deployed"])
        self._known = set(state["known"])
        self._steady_flops = {
            (structure, parameters, buffers): flops for structure, parameters, buffers, flops in state["steady_flops"]
        }
        self.meter.load_state_dict(state["meter"])
        self._total_at_deployment = state["total_at_deployment"]
        self._declared_at_deployment = state.get("declared_at_deployment", 0)  # none in states of before 2026-11-22
        self._clock = time.perf_counter()

    def protocol(self) -> dict[str, Any]:
        """Every number that the stream and the scores depend on, beside the seed; plain JSON values."""
        return {
            **self.data.protocol(),
            "ticks": self.ticks,
            "valid_fraction": self.valid_fraction,
            "partition": self.partition,
            "flops_budget": self.flops_budget,
            "parameter_budget": self.parameter_budget,
            "evaluation_batch_size": self.evaluation_batch_size,
        }
