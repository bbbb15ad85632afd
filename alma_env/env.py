"""The environment: it releases mega-batches, scores the deployed predictor at every tick, and keeps the ledger."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from alma_env.answers import Answers, as_it_answers
from alma_env.data.stream import Stream
from alma_env.episode import Episode, PendingAnswer, PendingReset
from alma_env.integers import require_seed
from alma_env.ledger import Ledger
from alma_env.metering.content.storages import all_tensors, contents_of, tensors_of
from alma_env.metering.meter import Meter, uncharged
from alma_env.metering.tally import Charge
from alma_env.protocol import Protocol, read_options, require_arrived
from alma_env.registration import PROTOCOL_KEYWORDS
from alma_env.rendering.drawn import Drawn
from alma_env.rendering.renderer import FPS, MODES, Renderer
from alma_env.rendering.view import FixedWaits, Trace, View
from alma_env.saved_state import SavedState, require_same
from alma_env.scoring.admission import is_untrained, require_metered
from alma_env.scoring.evaluation import Answer, unwrap
from alma_env.scoring.fingerprint import Fingerprint, Kind
from alma_env.scoring.spaces import PredictorSpace
from alma_env.text.corpus import TextCorpus
from alma_env.text.stream import TextStream

if TYPE_CHECKING:
    from alma_env.data.datasets import DataSet

Observation = dict[str, dict[str, np.ndarray[Any, Any]]]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


class AlmaEnv(Drawn, gym.Env[Observation, "nn.Module | None"]):
    """Anytime learning at macroscale (Caccia, Xu, Ott, Ranzato, Denoyer; arXiv 2106.09563, section 3).

    A data set arrives as a stream of ``B`` equal mega-batches from one distribution. After each arrival (a *tick*) the
    learner may wait, or train on the gathered mega-batches. In both cases it must answer at every tick, on a hidden
    test set. The score covers the whole stream: cumulative error rate, parameters and FLOPs.

    ## Action Space
    ``PredictorSpace``: the action is the predictor to deploy at this tick, or ``None`` to keep the deployed one. A
    predictor is any ``torch.nn.Module`` that maps a batch of raw inputs to floating-point logits of shape
    ``(batch, classes)``; for text, token ids ``(batch, T)`` to logits ``(batch, T, V)`` of the next tokens. The
    environment runs a copy in eval mode; the module stays the learner's. It sets the attribute ``training`` of all
    modules in the copy and does not call ``eval()``, which a class can override. A predictor whose content has not
    changed is not run again.

    ## Observation Space
    The mega-batch that has just arrived, as NumPy arrays: ``{"train": {"x", "y"}, "valid": {"x", "y"}}``. Images are
    uint8 ``(n, C, H, W)``, custom arrays uint8 or float32 ``(n, ...)``, labels int64 ``(n,)``. All mega-batches have
    the same size; 90 % of each is ``train`` and 10 % is ``valid``. After the last tick, the last mega-batch is returned
    again, because a Gymnasium observation must lie in the space. For text, ``x`` and ``y`` are token ids, int32
    ``(n, T)`` in ``0..V-1``, memory-mapped; ``y`` is the token after each token of ``x``. The whole mega-batch is
    ``train``, and ``valid`` is the same held-out set at every tick. The number n depends on the seed, so the space of
    the arrays is a ``Sequence``.

    ## Rewards
    Minus the error of the tick: the fraction of wrong answers on the test set, or the perplexity per token for text.
    The return of an episode is minus the cumulative error of ticks 1..B, also if a budget ends the episode early.

    ## Starting State
    ``reset(seed=s)`` determines the stream: the mega-batches are a pure function of the data set, ``s`` and ``B``. The
    answer at tick 0, before any data, is the uniform guess (error 1 − 1/C, or perplexity V; no parameters), or the
    untrained module passed as ``reset(options={"predictor": module})``. Then D_1 is released.

    ## Episode End
    *Termination:* after tick ``B``. *Truncation:* at the tick at which a budget is broken. The deployed predictor then
    stays for all remaining ticks; these are scored and entered into the ledger, and the reward of the last step
    includes their errors.

    ## Arguments
    * ``data``: the ``DataSet`` or ``TextCorpus`` to stream. ``alma_env.make(id, ...)`` loads it by name.
    * ``ticks``: the number of mega-batches ``B``.
    * ``valid_fraction``: the validation part of each mega-batch, 0.1; not for text.
    * ``partition``: ``"alma"``, or ``"continuum"``: the partition of ``continuum.scenarios.ALMA`` with the same seed;
      not for text.
    * ``flops_budget``: the most FLOPs of an episode, or None.
    * ``parameter_budget``: the most parameters of a deployed predictor, or None.
    * ``evaluation_batch_size``: test examples per forward pass; part of the protocol, because float sums depend on it.
    * ``render_mode``: see below; not part of the protocol.

    ## Rendering
    ``render()`` draws the errors so far, with a mark at each tick at which the learner trained or the deployed
    predictor grew. ``"rgb_array"`` returns an image, uint8 ``(420, 720, 3)``. ``"ansi"`` returns a line of text for the
    last tick. ``"human"`` draws in the terminal at each ``reset`` and ``step``; output that is no terminal gets a line
    per tick. The attribute ``fixed_waits``, errors at ticks 0..B by waiting time, adds faint lines to compare with.
    Drawing charges no FLOPs and draws no random number.

    ## Metering
    Train inside ``with env.meter:``. A predictor whose parameters changed elsewhere is refused with
    ``UnmeteredTrainingError``; learners that compute outside of PyTorch charge their work with ``env.meter.declare``.
    The info has what the learner may know: ``tick``, ``ticks``, ``error``, ``parameters``, ``comp`` and ``refused``.
    ``env.ledger`` has one row per tick, and ``env.ledger.score()`` returns CER, Mem and Comp.

    ## Version History
    * v0: first release.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": FPS}  # noqa: RUF012 - as Gymnasium declares it
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
        render_mode: str | None = None,
    ) -> None:
        protocol = Protocol(ticks, valid_fraction, partition, flops_budget, parameter_budget, evaluation_batch_size)
        self.data = data
        self.ticks = protocol.ticks
        self.valid_fraction = protocol.valid_fraction
        self.partition = protocol.partition
        self.flops_budget = protocol.flops_budget
        self.parameter_budget = protocol.parameter_budget
        self.evaluation_batch_size = protocol.evaluation_batch_size

        self.render_mode = render_mode
        self.fixed_waits: FixedWaits = {}
        self._renderer = Renderer(render_mode)
        self.meter = Meter()
        self._episode = Episode()
        # Of the episode; before the first reset, of seed 0. It is made now, so that no reset fails for the arguments.
        self._stream: Stream | TextStream | None = protocol.require_stream(data)
        self._answers = Answers()
        self._validation_answers = Answers("validation")
        if isinstance(data, TextCorpus):
            parts: dict[str, gym.Space[Any]] = {"train": data.part_space(), "valid": data.part_space()}
        else:
            assert isinstance(self._stream, Stream)
            train, valid = self._stream.indices(1)
            parts = {"train": data.part_space(len(train)), "valid": data.part_space(len(valid))}
        self.action_space = PredictorSpace(data.input_shape, data.classes, per_token=isinstance(data, TextCorpus))
        self.observation_space = cast("gym.Space[Observation]", spaces.Dict(parts))

    @property
    def ledger(self) -> Ledger:
        """One row per answered tick."""
        return self._episode.ledger

    @property
    def stream_seed(self) -> int | None:
        """Seed of the episode's stream; None before the first ``reset``."""
        return self._episode.stream_seed

    @property
    def tick(self) -> int:
        """The last answered tick: 0 after ``reset``, B at the end; −1 before the first ``reset``."""
        return len(self.ledger) - 1

    @property
    def done(self) -> bool:
        """Whether every tick has been answered."""
        return self.tick == self.ticks

    @property
    def examples_per_tick(self) -> int:
        """Training examples in each mega-batch; for text, sequences, whose number depends on the stream's seed.

        Before the first ``reset``, the stream of seed 0 is used, which text builds if it is not in the cache.
        """
        if self._stream is None:
            self._stream = self._make_stream(0)
        if isinstance(self._stream, TextStream):
            return self._stream.sequences
        return len(self._stream.indices(1)[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new stream: score tick 0 and release D_1.

        Args:
            seed: seed of the stream; if None, the environment's generator draws one.
            options: ``{"predictor": module}`` deploys an untrained module at tick 0.

        Raises:
            TypeError: the seed is not an integer, or the options are no dictionary.
            ValueError: an unknown option, or a predictor over ``parameter_budget``.
            PredictorError: the untrained predictor cannot be scored.
        """
        options = read_options(options, "{'predictor': module}")
        predictor = options.pop("predictor", None)
        if options:
            raise ValueError(f"options {sorted(options, key=str)}: unknown; the only option of reset is 'predictor'")
        started = self.begin(self.consider_reset(seed, predictor))
        self._renderer.show(self._view)
        return started

    def consider_reset(self, seed: int | None = None, predictor: nn.Module | None = None) -> PendingReset:
        """Do the first half of ``reset``: score tick 0, raise all errors of ``reset``, and change nothing.

        An arena resets several environments: either all of them start, or none.
        """
        seed = None if seed is None else require_seed(seed)  # Gymnasium takes no integers of NumPy
        if predictor is not None:
            self._check_action(predictor)
            predictor = unwrap(predictor)
        clock = time.perf_counter()
        # A copy of the generator draws the seed, so that the generator does not change.
        drawn = int(copy.deepcopy(self.np_random).integers(2**31)) if seed is None else seed
        stream = self._make_stream(drawn)
        if predictor is None:
            return PendingReset(seed, stream, PendingAnswer(0, Answer(self.data.task.guess, 0.0)), clock)
        with uncharged():
            predictor, mark = as_it_answers(predictor)
            if self._over_parameter_budget(mark):
                raise ValueError(
                    f"predictor with {mark.parameters} parameters: must have at most parameter_budget="
                    f"{self.parameter_budget}; start with a smaller one, or raise the budget"
                )
            return PendingReset(seed, stream, self._answer(0, predictor, mark, stream, {}), clock)

    def begin(self, pending: PendingReset) -> tuple[Observation, dict[str, Any]]:
        """Do the second half of ``reset``: start the pending episode."""
        super().reset(seed=pending.seed)
        stream_seed = pending.seed if pending.seed is not None else int(self.np_random.integers(2**31))
        self._stream = pending.stream
        self.meter.reset()
        self.meter.note_initial(all_tensors())  # networks are often made before the episode
        self._episode = Episode(stream_seed, clock=pending.clock)
        self._deploy(pending.answer)
        self._enter(pending.answer.answer, Charge(), refused=False)
        return self.observation(), self.info()

    def step(self, action: nn.Module | None) -> Step:
        """Answer at the tick of the last observed mega-batch, and release the next one.

        Args:
            action: the predictor to deploy, or None to keep the deployed one.

        Raises:
            TypeError: the action is neither a module nor None.
            PredictorError: the predictor cannot be scored. The episode does not change: deploy another predictor at
                the same tick.
            UnmeteredTrainingError: the predictor's parameters changed without a charge; the episode does not change.
            RuntimeError: the episode has not started or is over: call ``reset``.
        """
        stepped = self.commit(self.consider(action))
        self._renderer.show(self._view)
        return stepped

    def consider(self, action: nn.Module | None, *, tick_budget: float | None = None) -> PendingAnswer:
        """Do the first half of ``step``: score the action, raise all errors of ``step``, and change nothing.

        An arena steps several environments: either all of them step, or none.

        Args:
            action: as for ``step``, with the same errors.
            tick_budget: the most FLOPs that may be charged at this tick, or None. More FLOPs break a budget.
        """
        if self.tick < 0 or self.done:
            state = "has not started" if self.tick < 0 else "is over"
            raise RuntimeError(f"step() at tick {self.tick}: the episode {state}; call reset() first")
        self._check_action(action)
        episode, last, tick = self._episode, self.ledger[-1], self.tick + 1
        kept = PendingAnswer(tick, Answer(last.error, last.inference_flops))
        over_budget = PendingAnswer(tick, kept.answer, over_budget=True)
        with uncharged():
            if self.flops_budget is not None and self.meter.total > self.flops_budget:
                return over_budget
            if tick_budget is not None and self.meter.total - episode.comp > tick_budget:
                return over_budget
            if action is None:
                return kept
            given = unwrap(action)
            action, mark = as_it_answers(given)
            if mark.same_as(episode.deployed):
                return kept
            at_deployment = episode.total_at_deployment, episode.declared_at_deployment
            require_metered(action, given, mark, self.meter, episode.known, *at_deployment)
            if self._over_parameter_budget(mark):
                return over_budget
            accepted: tuple[int, ...] = ()
            if is_untrained(action) or self.meter.declared_total > episode.declared_at_deployment:
                accepted = contents_of(tensors_of(action))
            assert self._stream is not None
            pending = self._answer(tick, action, mark, self._stream, episode.steady_flops)
            return replace(pending, accepted=accepted)

    def commit(self, pending: PendingAnswer) -> Step:
        """Do the second half of ``step``: enter the pending answer into the ledger.

        Raises:
            RuntimeError: the answer is for another tick.
        """
        if pending.tick != self.tick + 1:
            raise RuntimeError(
                f"commit() of an answer to tick {pending.tick} at tick {self.tick + 1}: call consider() again"
            )
        charge = self.meter.take()
        if not pending.over_budget:
            self._deploy(pending)
            self._enter(pending.answer, charge, refused=False)
            return self.observation(), -pending.answer.error, self.done, False, self.info()
        reward = 0.0
        while not self.done:  # the deployed predictor answers at all remaining ticks
            self._enter(pending.answer, charge, refused=True)
            charge = Charge()
            reward -= pending.answer.error
        return self.observation(), reward, False, True, self.info()

    def megabatch(self, tick: int) -> Observation:
        """Return mega-batch D_tick again, if it has arrived: after the answer at tick t, D_1 .. D_{t+1} have arrived.

        Raises:
            TypeError: the tick is not an integer.
            ValueError: the mega-batch has not arrived yet, or does not exist.
        """
        tick = require_arrived(tick, self.tick, self.ticks)
        assert self._stream is not None
        found = self._stream.megabatch(tick)
        self.meter.note_data(found, functools.partial(self._stream.megabatch, tick))
        return found

    def observation(self) -> Observation:
        """Return the mega-batch that arrived last: D_{t+1} after the answer at tick t, and D_B after tick B."""
        return self.megabatch(min(self.tick + 1, self.ticks))

    @torch.inference_mode(False)
    def validation_error(self, predictor: nn.Module) -> float:
        """Return the error on the validation parts of all mega-batches, including those that have not arrived.

        For tools around the environment, such as the tuning of a policy, and not for the learner. Nothing is charged,
        and the test set is not used.

        Raises:
            PredictorError: the predictor cannot be scored.
            RuntimeError: there is no episode: call ``reset``.
        """
        if self.tick < 0:
            raise RuntimeError("validation_error() before reset(): there is no stream yet; call reset() first")
        assert self._stream is not None
        task, batch_size = self.data.task, self.evaluation_batch_size
        with uncharged():
            return self._validation_answers.error(unwrap(predictor), self._stream, task=task, batch_size=batch_size)

    def _view(self) -> View:
        if self.tick < 0:
            raise RuntimeError("render() before reset(): there is no episode to draw; call reset() first")
        title = self.data.name if self.spec is None else self.spec.id
        is_rate = not isinstance(self.data, TextCorpus)
        return View(title, self.ticks, {"agent": Trace.of_ledger(self.ledger)}, is_rate, fixed_waits=self.fixed_waits)

    def _deploy(self, pending: PendingAnswer) -> None:
        self._episode = self._episode.deploy(pending, self.meter)
        self.meter.note_accepted(pending.accepted)
        if pending.scored is not None:
            assert self._stream is not None
            self._answers.keep(pending.scored, self._stream)

    @torch.inference_mode(False)
    def _answer(
        self,
        tick: int,
        predictor: nn.Module,
        mark: Fingerprint,
        stream: Stream | TextStream,
        steady_flops: Mapping[Kind, float],
    ) -> PendingAnswer:
        task, batch_size = self.data.task, self.evaluation_batch_size
        answered, scored = self._answers.score(predictor, mark, stream, steady_flops, task=task, batch_size=batch_size)
        return PendingAnswer(tick, answered, mark, scored)

    def _enter(self, answered: Answer, charge: Charge, *, refused: bool) -> None:
        self._episode = self._episode.enter(answered, charge, refused=refused)

    def info(self) -> dict[str, Any]:
        """Return the info of the last ``step``: what the learner may know of its last answer."""
        last = self.ledger[-1]
        return {
            "tick": last.tick,
            "ticks": self.ticks,
            "error": last.error,
            "parameters": last.parameters,
            "comp": self._episode.comp,
            "refused": last.refused,
        }

    def _make_stream(self, seed: int) -> Stream | TextStream:
        if isinstance(self.data, TextCorpus):
            return self.data.stream(self.ticks, seed)
        return Stream(self.data, self.ticks, seed=seed, valid_fraction=self.valid_fraction, scheme=self.partition)

    def _check_action(self, action: object) -> None:
        if not self.action_space.contains(action):
            raise TypeError(
                f"action of type {type(action).__name__}: must be a torch.nn.Module, or None to keep the deployed "
                "predictor"
            )

    def _over_parameter_budget(self, mark: Fingerprint) -> bool:
        return self.parameter_budget is not None and mark.parameters > self.parameter_budget

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the episode as plain JSON values, without data and weights.

        Raises:
            RuntimeError: there is no episode, or FLOPs were charged since the last tick; save between ``step`` and the
                next training.
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
            "generator": self.np_random.bit_generator.state,
            "meter": self.meter.state_dict(),
            **self._episode.to_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state that ``state_dict`` returned; ``observation()`` returns the mega-batch to answer.

        Raises:
            ValueError: the state was saved by an environment with another data set or protocol, or is no such state.
            RuntimeError: the meter is running. The episode does not change.
        """
        self.restore(self.consider_state(state))

    def consider_state(self, state: dict[str, Any]) -> SavedState:
        """Read what `load_state_dict` will restore, and change nothing; raises its errors."""
        self.meter.require_stopped("load its state")
        require_same(state, self.protocol(), "an environment with the same data and protocol")
        return SavedState.read(state, self._make_stream)

    def restore(self, saved: SavedState) -> None:
        """Continue from a state that `consider_state` read."""
        self.meter.load_state_dict(saved.meter)
        self.np_random.bit_generator.state = saved.generator
        self._stream, self._episode = saved.stream, saved.episode
        self._note_arrived()

    def __getstate__(self) -> dict[str, Any]:
        # Relative to now, because each process has its own clock.
        return {**self.__dict__, "_episode": replace(self._episode, clock=self._episode.clock - time.perf_counter())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._episode = replace(self._episode, clock=self._episode.clock + time.perf_counter())
        if self.tick >= 0:
            self._note_arrived()

    def _note_arrived(self) -> None:
        """Let a new meter know the data that a learner may have already."""
        for tick in range(1, min(self.tick + 1, self.ticks) + 1):
            self.megabatch(tick)

    def protocol(self) -> dict[str, Any]:
        """Return every number that the stream and the scores depend on, except the seed; plain JSON values."""
        return {**self.data.protocol(), **{name: getattr(self, name) for name in ("ticks", *PROTOCOL_KEYWORDS)}}
