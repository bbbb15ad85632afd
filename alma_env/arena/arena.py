"""The arena: several agents answer on one stream, each with a meter, a ledger and budgets of its own.

A PettingZoo environment; needs the extra ``rl``. Scores, budgets, metering and refusals are those of `AlmaEnv`, of
which the arena holds one per agent: what it adds is that all take the same ticks together, and that they may have to
share one budget (`alma_env.auction`).

>>> from alma_env import arena
>>> env = arena.parallel_env("Digits-ALMA-v0", agents=["mine", "yours"], ticks=10)
>>> observations, infos = env.reset(seed=0)
>>> _, rewards, *_ = env.step({"mine": env.action_space("mine").sample(), "yours": None})
>>> sorted(rewards), env.ledgers["yours"].score().cer
(['mine', 'yours'], 1.8)
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.utils import seeding
from torch import nn

from alma_env import auction, meter
from alma_env.env import AlmaEnv, Step
from alma_env.errors import AlmaError, MissingPackageError
from alma_env.ledger import Ledger
from alma_env.registration import make

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils.conversions import parallel_to_aec
except ImportError as error:
    raise MissingPackageError(
        "the arena needs the package pettingzoo, which is not installed: pip install 'alma-env[rl]'"
    ) from error

Observation = dict[str, Any]
Budget = float | Mapping[str, float | None] | None


def parallel_env(
    id: str,
    agents: Iterable[str] | int = 2,
    *,
    flops_budget: Budget = None,
    parameter_budget: Budget = None,
    shared_flops_budget: float | None = None,
    seats: int = 1,
    **keywords: Any,
) -> Arena:
    """Make an arena on one of the streams.

    Args:
        id: of the stream, as for ``alma_env.make``.
        agents: their names, or how many: ``agent_0``, ``agent_1``, …
        flops_budget: see `Arena`.
        parameter_budget: see `Arena`.
        shared_flops_budget: see `Arena`.
        seats: see `Arena`.
        keywords: the others of ``alma_env.make``, such as ``ticks``. The data are loaded once, for all.

    Raises:
        ValueError: an unknown id, or a value that breaks its rule.
        TypeError: an unknown keyword, or a value of another type.
        DataUnavailableError: the data set is neither on disk nor to be downloaded.
    """
    return Arena(
        make(id, **keywords),
        agents,
        flops_budget=flops_budget,
        parameter_budget=parameter_budget,
        shared_flops_budget=shared_flops_budget,
        seats=seats,
    )


def env(id: str, agents: Iterable[str] | int = 2, **keywords: Any) -> AECEnv[str, Observation, Any]:
    """The same, one agent after another, by PettingZoo's converter; ``env(...).unwrapped`` is the `Arena`."""
    return parallel_to_aec(parallel_env(id, agents, **keywords))


class Arena(ParallelEnv[str, Observation, Any]):
    """Several agents on one stream (``AlmaEnv`` is the manual of what each of them does there).

    ## Action Space
    Of each agent `PredictorSpace`: its predictor, or ``None`` to keep the one before. With a shared budget
    ``{"predictor": ..., "bid": ...}``; the bid for the next tick is a number of FLOPs, float64 ``()``, from 0 to the
    shared budget. A bid that is answered at the last tick has no effect.

    ## Observation Space
    Of each agent the mega-batch that has arrived, the same for all, in arrays of its own:
    ``{"train": {"x", "y"}, "valid": {"x", "y"}}``. With a shared budget also ``"grant"``, the FLOPs that the agent may
    spend before its next answer, and ``"pool"``, the FLOPs that are left for all after that; float64 ``()``.

    ## Rewards
    Minus the error of the tick; at the tick at which a budget is broken, of all remaining ticks.

    ## Starting State
    ``reset(seed=s)`` gives every agent the stream that ``AlmaEnv.reset(seed=s)`` gives.
    ``options={"predictors": {agent: module}}`` has untrained modules answer at tick 0; others begin with the uniform
    guess. ``options={"bids": {agent: FLOPs}}`` are the bids for tick 1; who has none bids 0.

    ## Episode End
    All that are left are terminated after tick B. An agent that breaks a budget is truncated, with the remaining ticks
    scored in its ledger, and leaves ``agents``; the others go on. The last observation that it gets is what the
    others get then: nothing that has not arrived.

    ## Metering
    Each agent trains inside ``with arena.meters[agent]:``. What one agent trained is unmetered training if another
    deploys it. Where an action is refused, with an error that names the agent, nothing has changed for anybody. The
    ``seconds`` in a ledger are the arena's: of all agents, where they train one after another.

    ## What rivals see
    An agent's info is that of `AlmaEnv` (``tick``, ``ticks``, ``error``, ``parameters``, ``comp``, ``refused``), and in
    ``rivals`` the last four of these of every other agent as of the tick that all have just answered, ``comp`` being
    what was spent so far. Never data, weights, or what a rival is about to deploy. With a shared budget ``grant`` and
    ``pool`` stand there, too, and ``grant`` also in ``rivals``, since grants are made in public; bids are not shown.

    ## Shared budget
    The agents have ``shared_flops_budget`` FLOPs together. Before each tick the ``seats`` highest bidders are granted
    what they bid, as far as the pool reaches; ties are broken by a draw that the seed fixes. A grant is gone, used or
    not. Who is charged more than its grant at a tick, or anything without one, has broken a budget. See
    `alma_env.auction`.

    ## Arguments
    * ``env``: whose data, ticks and other numbers of the protocol all agents share. It is not stepped.
    * ``agents``: their names, or how many.
    * ``flops_budget``, ``parameter_budget``: of each agent, or by name; who is not named has none. Where not given,
      those of ``env``.
    * ``shared_flops_budget``, ``seats``: as above; None for no shared budget.

    ## Version History
    * v0: first release.
    """

    metadata: dict[str, Any] = {"name": "alma_arena_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        env: AlmaEnv,
        agents: Iterable[str] | int = 2,
        *,
        flops_budget: Budget = None,
        parameter_budget: Budget = None,
        shared_flops_budget: float | None = None,
        seats: int = 1,
    ) -> None:
        self.possible_agents: list[str] = _names(agents)
        self.agents: list[str] = []
        self.ticks = env.ticks
        self.tick = -1  # the last one that was answered; -1 before the first reset
        self.shared_flops_budget: int | None = None
        if shared_flops_budget is not None:
            self.shared_flops_budget = auction.read_budget(shared_flops_budget, seats, len(self.possible_agents))
        elif seats != 1:
            raise ValueError(
                f"seats={seats} without a shared budget: give shared_flops_budget, too, or leave seats out"
            )
        self.seats = int(seats)
        self.pool = self.shared_flops_budget or 0
        self.grants = dict.fromkeys(self.possible_agents, 0)
        flops = _by_agent("flops_budget", flops_budget, self.possible_agents, env.flops_budget)
        parameters = _by_agent("parameter_budget", parameter_budget, self.possible_agents, env.parameter_budget)
        self._envs = {
            agent: AlmaEnv(
                env.data,
                env.ticks,
                valid_fraction=env.valid_fraction,
                partition=env.partition,
                flops_budget=flops[agent],
                parameter_budget=parameters[agent],
                evaluation_batch_size=env.evaluation_batch_size,
            )
            for agent in self.possible_agents
        }
        self._spaces = {agent: self._make_spaces(own) for agent, own in self._envs.items()}
        self._generator, _ = seeding.np_random()
        self._seed = 0

    def _make_spaces(self, own: AlmaEnv) -> tuple[Space[Any], Space[Any]]:
        if self.shared_flops_budget is None:
            return own.observation_space, own.action_space
        assert isinstance(own.observation_space, spaces.Dict)
        flops = [spaces.Box(0.0, float(self.shared_flops_budget), (), np.float64) for _ in range(3)]
        return (
            spaces.Dict({**own.observation_space.spaces, "grant": flops[0], "pool": flops[1]}),
            spaces.Dict({"predictor": own.action_space, "bid": flops[2]}),
        )

    def observation_space(self, agent: str) -> Space[Any]:
        """Of one agent; the same object at each call."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Space[Any]:
        """Of one agent; the same object at each call."""
        return self._spaces[agent][1]

    @property
    def meters(self) -> dict[str, meter.Meter]:
        """Each agent's own, to train in: ``with arena.meters[agent]:``."""
        return {agent: own.meter for agent, own in self._envs.items()}

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """Each agent's own; of one that has dropped out complete, up to tick B."""
        return {agent: own.ledger for agent, own in self._envs.items()}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin a new stream for all agents: score tick 0 and release D_1.

        Args:
            seed: seed of the stream; without it one is drawn from the arena's generator.
            options: ``{"predictors": {agent: module}, "bids": {agent: FLOPs}}``, see the class. Others are passed over
                with a warning, since PettingZoo's checks give some.

        Raises:
            ValueError: an option names an agent that there is not, a predictor is over ``parameter_budget``, a bid
                breaks its rule, or there are bids without a shared budget.
            TypeError: a predictor is no module, or a bid no number.
            PredictorError: an untrained predictor cannot be scored.
        """
        options = dict(options or {})
        predictors = self._of_agents("predictors", options.pop("predictors", None))
        bids = self._of_agents("bids", options.pop("bids", None))
        if options:
            warnings.warn(
                f"options {sorted(options)} are passed over: the arena's reset knows 'predictors' and 'bids'",
                stacklevel=2,
            )
        if bids and self.shared_flops_budget is None:
            raise ValueError(f"bids {bids} without a shared budget: give shared_flops_budget, or leave the bids out")
        read = {agent: self._read_bid(agent, bid) for agent, bid in bids.items()}
        # The seed is looked up before it is drawn, so that nothing has changed where something is refused.
        drawn = int(copy.deepcopy(self._generator).integers(2**31)) if seed is None else seed
        beginnings = {}
        with _nobody_charged():
            for agent, own in self._envs.items():
                with _named(agent):
                    beginnings[agent] = own.consider_reset(drawn, predictors.get(agent))

        if seed is None:
            self._generator.integers(2**31)
        else:
            self._generator, _ = seeding.np_random(seed)
        for agent, own in self._envs.items():
            own.begin(beginnings[agent])
        self._seed = drawn
        self.agents, self.tick = list(self.possible_agents), 0
        self.pool = self.shared_flops_budget or 0
        self._hold_auction(read)
        return self.observations(), {agent: self._info(agent) for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Have every agent that is left answer, and release the next mega-batch.

        Args:
            actions: the action of each agent in ``agents``.

        Returns:
            Observations, rewards, terminations, truncations and infos of these same agents. Those for whom it was the
            last tick are no longer in ``agents``.

        Raises:
            TypeError, PredictorError, UnmeteredTrainingError: as ``AlmaEnv.step``, with the agent's name; or an action
                without a predictor or bid. The arena is as it was before the call.
            ValueError: actions are missing, or of agents that are out; a bid breaks its rule.
            RuntimeError: nobody is left: call ``reset``.
        """
        self._require_all(actions)
        read = {agent: self._read_action(agent, actions[agent]) for agent in self.agents}
        answered = {}
        with _nobody_charged():
            for agent, (predictor, _) in read.items():
                with _named(agent):
                    allowed = None if self.shared_flops_budget is None else self.grants[agent]
                    answered[agent] = self._envs[agent].consider(predictor, tick_budget=allowed)

        # All may be as they say; only now anything changes.
        steps: dict[str, Step] = {agent: self._envs[agent].commit(answer) for agent, answer in answered.items()}
        self.tick += 1
        self.agents = [agent for agent, (_, _, ended, dropped, _) in steps.items() if not (ended or dropped)]
        self._hold_auction({agent: read[agent][1] for agent in self.agents})
        return (
            {agent: self._observation(agent) for agent in steps},
            {agent: step[1] for agent, step in steps.items()},
            {agent: step[2] for agent, step in steps.items()},
            {agent: step[3] for agent, step in steps.items()},
            {agent: self._info(agent) for agent in steps},
        )

    def observations(self) -> dict[str, Observation]:
        """What each agent that is left observes: the mega-batch that awaits its answer."""
        return {agent: self._observation(agent) for agent in self.agents}

    def megabatch(self, tick: int) -> Observation:
        """Mega-batch D_tick again, if it has arrived: once tick t is answered, D_1 .. D_{t+1} have.

        Raises:
            ValueError: it has not arrived yet, or there is no such mega-batch.
        """
        # An agent that is out has its answers up to tick B: its environment would give anything.
        arrived = min(self.tick + 1, self.ticks)
        if not 1 <= tick <= arrived:
            raise ValueError(f"tick={tick}: mega-batches 1 to {arrived} have arrived; step() releases the next one")
        return next(iter(self._envs.values())).megabatch(tick)

    def _observation(self, agent: str) -> Observation:
        observation: Observation = {**self.megabatch(min(self.tick + 1, self.ticks))}
        if self.shared_flops_budget is not None:
            observation["grant"] = np.array(self.grants[agent], dtype=np.float64)
            observation["pool"] = np.array(self.pool, dtype=np.float64)
        return observation

    def _info(self, agent: str) -> dict[str, Any]:
        own = self._envs[agent]
        info = own.info()
        info["rivals"] = {rival: self._public(rival) for rival in self.possible_agents if rival != agent}
        if self.shared_flops_budget is not None:
            info |= {"grant": self.grants[agent], "pool": self.pool}
        return info

    def _public(self, agent: str) -> dict[str, Any]:
        # Of an agent that is out it is that of tick B: what stays deployed has one error at all ticks.
        info = self._envs[agent].info()
        public = {name: info[name] for name in ("error", "parameters", "comp", "refused")}
        return public if self.shared_flops_budget is None else public | {"grant": self.grants[agent]}

    def _hold_auction(self, bids: Mapping[str, int]) -> None:
        """Make the grants of the next tick, if there is one."""
        self.grants = dict.fromkeys(self.possible_agents, 0)
        if self.shared_flops_budget is None or self.tick == self.ticks:
            return
        rank = auction.tie_ranks(sorted(self.possible_agents), self._seed, self.tick + 1)
        self.grants |= auction.grants(bids, seats=self.seats, pool=self.pool, rank=rank)
        self.pool -= sum(self.grants.values())

    def _of_agents(self, name: str, values: Any) -> dict[str, Any]:
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"{name}={values!r}: give them by agent, for example {{{self.possible_agents[0]!r}: ...}}")
        return _require_known(name, values or {}, self.possible_agents)

    def _require_all(self, actions: Mapping[str, Any]) -> None:
        if not self.agents:
            state = "has not begun" if self.tick < 0 else "is over"
            raise RuntimeError(f"step() at tick {self.tick}: the episode {state}; call reset() first")
        for agent in self.agents:
            if agent not in actions:
                raise ValueError(
                    f"no action of agent {agent!r}: every agent in arena.agents answers at every tick; None keeps the "
                    "predictor that is deployed"
                )
        for agent in actions:
            if agent not in self.agents:
                state = "has dropped out" if agent in self._envs else "is unknown"
                raise ValueError(f"action of agent {agent!r}, which {state}: give those of arena.agents, {self.agents}")

    def _read_action(self, agent: str, action: Any) -> tuple[nn.Module | None, int]:
        if self.shared_flops_budget is None:
            return action, 0
        if not isinstance(action, Mapping) or set(action) != {"predictor", "bid"}:
            raise TypeError(
                f"agent {agent!r}: action {action!r} with a shared budget: give "
                "{'predictor': a module or None, 'bid': FLOPs for the next tick, or 0}"
            )
        return action["predictor"], self._read_bid(agent, action["bid"])

    def _read_bid(self, agent: str, bid: Any) -> int:
        assert self.shared_flops_budget is not None
        with _named(agent):
            return auction.read_bid(bid, self.shared_flops_budget)

    def protocol(self) -> dict[str, Any]:
        """Every number that the stream, the scores and the budgets depend on, beside the seed; plain JSON values."""
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
        """Where the episode stands for every agent; plain JSON values, no data and no weights.

        Raises:
            RuntimeError: an agent was charged since the last tick, or there is no episode.
        """
        states = {}
        for agent, own in self._envs.items():
            with _named(agent):
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
        """Go on where ``state_dict`` was taken; ``observations()`` then gives what awaits an answer.

        Raises:
            ValueError: the state was saved by an arena of other agents, data or budgets.
        """
        for name, value in self.protocol().items():
            if state["protocol"].get(name) != value:
                raise ValueError(
                    f"{name}={state['protocol'].get(name)!r} in the saved state, {value!r} here: an episode goes on "
                    "only in an arena of the same agents, data and budgets; make one with the saved values"
                )
        for agent, own in self._envs.items():
            own.load_state_dict(state["envs"][agent])
        self._generator.bit_generator.state = state["generator"]
        self._seed, self.tick = int(state["seed"]), int(state["tick"])
        self.agents = list(state["agents"])
        self.pool, self.grants = int(state["pool"]), {agent: int(grant) for agent, grant in state["grants"].items()}


@contextmanager
def _named(agent: str) -> Iterator[None]:
    """Have errors say whose they are."""
    try:
        yield
    except (AlmaError, TypeError, ValueError, RuntimeError) as error:
        plain = next((kind for kind in (TypeError, ValueError, RuntimeError) if isinstance(error, kind)), AlmaError)
        kind = type(error) if isinstance(error, AlmaError) else plain
        raise kind(f"agent {agent!r}, whose meter is arena.meters[{agent!r}]: {error}") from error


def _nobody_charged() -> AbstractContextManager[None]:
    """Around scoring: an agent may call from inside its meter's block, and all are scored then."""
    running = meter.running()
    return nullcontext() if running is None else running.paused()


def _names(agents: Iterable[str] | int) -> list[str]:
    if isinstance(agents, int) and not isinstance(agents, bool):
        names = [f"agent_{number}" for number in range(agents)]
    elif isinstance(agents, Iterable) and not isinstance(agents, str):
        names = list(agents)
    else:
        raise TypeError(f"agents={agents!r}: give their names in a list, or how many there are")
    if not names:
        raise ValueError(f"agents={agents!r}: an arena has at least 1 agent")
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"agents={agents!r}: {name!r} is no name; give texts, for example ['mine', 'yours']")
        if names.count(name) > 1:
            raise ValueError(f"agents={agents!r}: {name!r} stands there twice; give each agent a name of its own")
    return names


def _by_agent(name: str, budget: Budget, agents: list[str], default: float | None) -> dict[str, Any]:
    if not isinstance(budget, Mapping):
        return dict.fromkeys(agents, default if budget is None else budget)
    known = _require_known(name, budget, agents)
    return {agent: known.get(agent) for agent in agents}


def _require_known(name: str, values: Mapping[str, Any], agents: list[str]) -> dict[str, Any]:
    for agent in values:
        if agent not in agents:
            known = ", ".join(map(repr, agents))
            raise ValueError(f"{name} of agent {agent!r}: there is no such agent; the agents are {known}")
    return dict(values)
