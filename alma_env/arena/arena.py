"""The arena: several agents answer on one stream, each with its own meter, ledger and budgets.

A PettingZoo environment; needs the extra ``rl``. The arena has one `AlmaEnv` per agent, with the same scores, budgets,
metering and refusals. In addition, all agents step together, and they may share one budget (`alma_env.arena.auction`).

>>> from alma_env import arena
>>> env = arena.parallel_env("Digits-ALMA-v0", agents=["mine", "yours"], ticks=10)
>>> observations, infos = env.reset(seed=0)
>>> _, rewards, *_ = env.step({"mine": env.action_space("mine").sample(), "yours": None})
>>> sorted(rewards), env.ledgers["yours"].score().cer
(['mine', 'yours'], 1.8)
"""

from __future__ import annotations

import copy
import reprlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.utils import seeding

from alma_env.arena import auction
from alma_env.arena.actions import by_agent, named, read_actions, read_bids, spaces_of
from alma_env.arena.participants import Budget, agent_names, budgets_by_agent
from alma_env.env import AlmaEnv, Step
from alma_env.errors import MissingPackageError, how_to_install
from alma_env.integers import require_seed
from alma_env.ledger import Ledger
from alma_env.metering.meter import Meter, uncharged
from alma_env.protocol import read_options, require_arrived
from alma_env.registration import PROTOCOL_KEYWORDS
from alma_env.rendering.drawn import Drawn
from alma_env.rendering.renderer import FPS, MODES, Renderer
from alma_env.rendering.view import FixedWaits, Trace, View
from alma_env.saved_state import checked_generator, damage_named, require_same
from alma_env.text.corpus import TextCorpus

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingPackageError(
        f"the arena needs the package pettingzoo, which is not installed; {how_to_install('rl')}"
    ) from error

Observation = dict[str, Any]


class Arena(Drawn, ParallelEnv[str, Observation, Any]):
    """Several agents on one stream. The manual of ``AlmaEnv`` describes what each of them does.

    ## Action Space
    For each agent `PredictorSpace`: the predictor to deploy, or ``None`` to keep the deployed one. With a shared budget
    ``{"predictor": ..., "bid": ...}``; the bid for the next tick is a number of FLOPs, float64 ``()``, from 0 to the
    shared budget. The bids at the last tick have no effect.

    ## Observation Space
    For each agent the mega-batch that has arrived, in separate arrays with equal content:
    ``{"train": {"x", "y"}, "valid": {"x", "y"}}``. With a shared budget also ``"grant"``, the FLOPs that the agent may
    spend before its next answer, and ``"pool"``, the FLOPs left for all agents after the grants; float64 ``()``.

    ## Rewards
    Minus the error of the tick; at the tick at which a budget is broken, minus the errors of all remaining ticks.

    ## Starting State
    ``reset(seed=s)`` gives every agent the stream of ``AlmaEnv.reset(seed=s)``.
    ``options={"predictors": {agent: module}}`` deploys untrained modules at tick 0; the other agents start with the
    uniform guess. ``options={"bids": {agent: FLOPs}}`` are the bids for tick 1; the default bid is 0.

    ## Episode End
    All remaining agents are terminated after tick B. An agent that breaks a budget is truncated: its remaining ticks
    are scored in its ledger, and it leaves ``agents``; the other agents continue. Its last observation is that of the
    other agents, so that it sees no mega-batch that has not arrived.

    ## Metering
    Each agent trains inside ``with arena.meters[agent]:``. A predictor that one agent trained is unmetered if another
    agent deploys it. A refused action raises an error that names the agent and changes nothing for any agent. The
    ``seconds`` in a ledger are those of the arena: if agents train one after another, those of all agents.

    ## Info
    The info of an agent is that of `AlmaEnv` (``tick``, ``ticks``, ``error``, ``parameters``, ``comp``, ``refused``)
    and ``rivals``: for every other agent its ``error``, ``parameters``, ``comp`` and ``refused`` at the tick that all
    have just answered; ``comp`` is the sum up to that tick. It never has data, weights, or the next predictor of a
    rival. With a shared budget the info also has ``grant`` and ``pool``, and ``rivals`` has ``grant``; bids are secret.

    ## Shared budget
    The agents have ``shared_flops_budget`` FLOPs together. Before each tick the ``seats`` highest bidders are granted
    their bids, as far as the pool suffices; a random order that the seed determines breaks ties. A grant leaves the
    pool whether or not it is used. An agent breaks the budget if it is charged more than its grant at a tick, or
    anything without a grant. See `alma_env.arena.auction`.

    ## Arguments
    * ``env``: the environment whose data, ticks and other numbers of the protocol all agents share. It is not stepped.
    * ``agents``: names of the agents, or their number.
    * ``flops_budget``, ``parameter_budget``: one budget for each agent, or budgets by name, where an agent without an
      entry has no budget. Default: the budgets of ``env``.
    * ``shared_flops_budget``, ``seats``: see above; None for no shared budget.
    * ``render_mode``: ``"human"``, ``"rgb_array"``, ``"ansi"`` or None, as for ``AlmaEnv``; a picture has all agents.

    ## Version History
    * v0: first release.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as PettingZoo declares it
        "name": "alma_arena_v0",
        "render_modes": [*MODES],
        "render_fps": FPS,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        env: AlmaEnv,
        agents: Iterable[str] | int = 2,
        *,
        flops_budget: Budget = None,
        parameter_budget: Budget = None,
        shared_flops_budget: float | None = None,
        seats: int = 1,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(env, AlmaEnv):
            raise TypeError(
                f"env={reprlib.repr(env)}: must be an AlmaEnv; pass env.unwrapped, or use alma_env.make, which wraps "
                "nothing"
            )
        self.possible_agents: list[str] = agent_names(agents)
        self.agents: list[str] = []
        self.ticks = env.ticks
        self.tick = -1  # the last answered tick; -1 before the first reset
        self.shared_flops_budget: int | None = None
        if shared_flops_budget is not None:
            self.shared_flops_budget = auction.read_budget(shared_flops_budget, seats, len(self.possible_agents))
        elif seats != 1:
            raise ValueError(
                f"seats={seats}: only with a shared budget; pass shared_flops_budget, too, or leave seats out"
            )
        self.seats = int(seats)
        self.pool = self.shared_flops_budget or 0
        self.grants = dict.fromkeys(self.possible_agents, 0)
        flops = budgets_by_agent("flops_budget", flops_budget, self.possible_agents, env.flops_budget)
        parameters = budgets_by_agent("parameter_budget", parameter_budget, self.possible_agents, env.parameter_budget)
        shared = {name: getattr(env, name) for name in PROTOCOL_KEYWORDS}
        self._envs = {
            agent: AlmaEnv(
                env.data, env.ticks, **shared | {"flops_budget": flops[agent], "parameter_budget": parameters[agent]}
            )
            for agent in self.possible_agents
        }
        self._spaces = {agent: spaces_of(own, self.shared_flops_budget) for agent, own in self._envs.items()}
        self._generator, _ = seeding.np_random()
        self._seed = 0
        self.render_mode = render_mode
        self.fixed_waits: FixedWaits = {}
        self._renderer = Renderer(render_mode)
        self._title = env.data.name if env.spec is None else env.spec.id

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the observation space of an agent; the same object at each call."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space[Any]:
        """Return the action space of an agent; the same object at each call."""
        return self._spaces[agent][1]

    @property
    def meters(self) -> dict[str, Meter]:
        """The meter of each agent, to train in: ``with arena.meters[agent]:``."""
        return {agent: own.meter for agent, own in self._envs.items()}

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledger of each agent; it is complete, up to tick B, if the agent broke a budget."""
        return {agent: own.ledger for agent, own in self._envs.items()}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start a new stream for all agents: score tick 0 and release D_1.

        Args:
            seed: seed of the stream; if None, the arena's generator draws one.
            options: ``{"predictors": {agent: module}, "bids": {agent: FLOPs}}``, see the class. Other options are
                ignored with a warning, because PettingZoo's checks pass some.

        Raises:
            ValueError: an option names an unknown agent, a predictor is over ``parameter_budget``, a bid breaks its
                rule, or there are bids without a shared budget.
            TypeError: the seed is not an integer, the options are no dictionary, a predictor is not a module, or a bid
                is not a number.
            PredictorError: an untrained predictor cannot be scored.
        """
        seed = None if seed is None else require_seed(seed)  # Gymnasium takes no integers of NumPy
        options = read_options(options, "{'predictors': {'agent_0': module}}")
        predictors = by_agent("predictors", options.pop("predictors", None), self.possible_agents)
        bids = by_agent("bids", options.pop("bids", None), self.possible_agents)
        if options:
            text = f"options {sorted(options, key=str)} are ignored: the options of reset are 'predictors' and 'bids'"
            warnings.warn(text, stacklevel=2)
        read = read_bids(bids, self.shared_flops_budget)
        # A copy of the generator draws the seed, so that a refused reset changes nothing.
        drawn = int(copy.deepcopy(self._generator).integers(2**31)) if seed is None else seed
        pending = {}
        with uncharged():
            for agent, own in self._envs.items():
                with named(agent):
                    pending[agent] = own.consider_reset(drawn, predictors.get(agent))

        if seed is None:
            self._generator.integers(2**31)
        else:
            self._generator, _ = seeding.np_random(seed)
        for agent, own in self._envs.items():
            own.begin(pending[agent])
        self._seed = drawn
        self.agents, self.tick = list(self.possible_agents), 0
        self.pool = self.shared_flops_budget or 0
        self._hold_auction(read)
        self._renderer.show(self._view)
        return self.observations(), {agent: self._info(agent) for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Take the answers of all remaining agents, and release the next mega-batch.

        Args:
            actions: the action of each agent in ``agents``.

        Returns:
            Observations, rewards, terminations, truncations and infos of these agents. Agents whose episode ends are
            removed from ``agents``.

        Raises:
            TypeError, PredictorError, UnmeteredTrainingError: as ``AlmaEnv.step``, with the agent's name; or an action
                has no predictor or bid. The arena does not change.
            ValueError: an action is missing, or of an agent that is not in ``agents``; a bid breaks its rule.
            RuntimeError: no agent is left: call ``reset``.
        """
        if not self.agents:
            state = "has not started" if self.tick < 0 else "is over"
            raise RuntimeError(f"step() at tick {self.tick}: the episode {state}; call reset() first")
        read = read_actions(actions, self.agents, self.possible_agents, self.shared_flops_budget)
        answers = {}
        with uncharged():
            for agent, (predictor, _) in read.items():
                with named(agent):
                    allowed = None if self.shared_flops_budget is None else self.grants[agent]
                    answers[agent] = self._envs[agent].consider(predictor, tick_budget=allowed)

        # No action was refused; from here on, the state changes.
        steps: dict[str, Step] = {agent: self._envs[agent].commit(answer) for agent, answer in answers.items()}
        self.tick += 1
        self.agents = [agent for agent, (_, _, ended, dropped, _) in steps.items() if not (ended or dropped)]
        self._hold_auction({agent: read[agent][1] for agent in self.agents})
        self._renderer.show(self._view)
        return (
            {agent: self._observation(agent) for agent in steps},
            {agent: step[1] for agent, step in steps.items()},
            {agent: step[2] for agent, step in steps.items()},
            {agent: step[3] for agent, step in steps.items()},
            {agent: self._info(agent) for agent in steps},
        )

    def observations(self) -> dict[str, Observation]:
        """Return the observation of each remaining agent: the mega-batch to answer."""
        return {agent: self._observation(agent) for agent in self.agents}

    def megabatch(self, tick: int) -> Observation:
        """Return mega-batch D_tick again, if it has arrived: after the answers at tick t, D_1 .. D_{t+1} have arrived.

        Raises:
            TypeError: the tick is not an integer.
            ValueError: the mega-batch has not arrived yet, or does not exist.
        """
        # Checked here: the environment of an agent that broke a budget is at tick B and would return any mega-batch.
        tick = require_arrived(tick, self.tick, self.ticks)
        return next(iter(self._envs.values())).megabatch(tick)  # the environments have noted their own arrays of it

    def _view(self) -> View:
        if self.tick < 0:
            raise RuntimeError("render() before reset(): there is no episode to draw; call reset() first")
        # The ledger of an agent that broke a budget is complete.
        traces = {agent: Trace.of_ledger(ledger, self.tick) for agent, ledger in self.ledgers.items()}
        is_rate = not isinstance(next(iter(self._envs.values())).data, TextCorpus)
        return View(self._title, self.ticks, traces, is_rate, fixed_waits=self.fixed_waits)

    def _observation(self, agent: str) -> Observation:
        observation: Observation = {**self.megabatch(min(self.tick + 1, self.ticks))}
        if self.shared_flops_budget is not None:
            observation["grant"] = np.array(self.grants[agent], dtype=np.float64)
            observation["pool"] = np.array(self.pool, dtype=np.float64)
        return observation

    def _info(self, agent: str) -> dict[str, Any]:
        info = self._envs[agent].info()
        info["rivals"] = {rival: self._public(rival) for rival in self.possible_agents if rival != agent}
        if self.shared_flops_budget is not None:
            info |= {"grant": self.grants[agent], "pool": self.pool}
        return info

    def _public(self, agent: str) -> dict[str, Any]:
        # The info of an agent that broke a budget is that of tick B: its error is equal at all remaining ticks.
        info = self._envs[agent].info()
        public = {name: info[name] for name in ("error", "parameters", "comp", "refused")}
        return public if self.shared_flops_budget is None else public | {"grant": self.grants[agent]}

    def _hold_auction(self, bids: Mapping[str, int]) -> None:
        """Set the grants of the next tick, if there is one."""
        self.grants = dict.fromkeys(self.possible_agents, 0)
        if self.shared_flops_budget is None or self.tick == self.ticks:
            return
        rank = auction.tie_ranks(sorted(self.possible_agents), self._seed, self.tick + 1)
        self.grants |= auction.grants(bids, seats=self.seats, pool=self.pool, rank=rank)
        self.pool -= sum(self.grants.values())

    def protocol(self) -> dict[str, Any]:
        """Return every number that stream, scores and budgets depend on, except the seed; plain JSON values."""
        budgets = ("flops_budget", "parameter_budget")
        protocols = {agent: own.protocol() for agent, own in self._envs.items()}
        stream = next(iter(protocols.values()))
        return {
            "stream": {name: value for name, value in stream.items() if name not in budgets},
            "agents": {agent: {name: protocol[name] for name in budgets} for agent, protocol in protocols.items()},
            "shared_flops_budget": self.shared_flops_budget,
            "seats": self.seats,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the episode for every agent as plain JSON values, without data and weights.

        Raises:
            RuntimeError: there is no episode, or an agent was charged since the last tick.
        """
        states = {}
        for agent, own in self._envs.items():
            with named(agent):
                states[agent] = own.state_dict()
        return {
            "protocol": self.protocol(),
            "generator": self._generator.bit_generator.state,
            "seed": self._seed,
            "tick": self.tick,
            "agents": list(self.agents),
            "pool": self.pool,
            "grants": dict(self.grants),
            "envs": states,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state that ``state_dict`` returned; ``observations()`` returns the mega-batches to answer.

        Raises:
            ValueError: the state was saved by an arena with other agents, data or budgets, or is no such state.
            RuntimeError: the meter of an agent is running. The arena does not change.
        """
        require_same(state, self.protocol(), "an arena with the same agents, data and budgets")
        with damage_named():
            states = {agent: state["envs"][agent] for agent in self.possible_agents}
            generator = checked_generator(state["generator"])
            seed, tick, agents, pool = int(state["seed"]), int(state["tick"]), list(state["agents"]), int(state["pool"])
            grants = {agent: int(state["grants"][agent]) for agent in self.possible_agents}
        saved = {}
        for agent, own in self._envs.items():
            with named(agent):
                saved[agent] = own.consider_state(states[agent])
        for agent, own in self._envs.items():
            own.restore(saved[agent])
        self._generator.bit_generator.state = generator
        self._seed, self.tick, self.agents, self.pool, self.grants = seed, tick, agents, pool, grants
