"""The anytime agent implements Algorithm 1, and its identities hold exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents import AnytimeAgent, Decision, StageReport, fixed_wait
from agents.policies.progress import PolicyError
from agents.training.stage import LearnerError

TICKS = 6


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def play(env, seed=0, **settings):
    agent = agents.make("sm", env, width=8, epochs=3, seed=seed, **settings)
    return agents.run(env, agent, seed)


class Recorder:
    """A learner that records its calls."""

    def __init__(self) -> None:
        self.predictor = torch.nn.Identity()
        self.calls: list[tuple] = []
        self.inputs: list[torch.Tensor] = []

    def train(self, train, valid):
        self.inputs.append(train.x)
        self.calls.append(("train", len(train), len(valid)))
        return StageReport((0.5,), (0.25,), 1)

    def grow(self, train, valid):
        self.calls.append(("grow", len(train), len(valid)))

    def restart(self):
        self.calls.append(("restart",))


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (lambda: None, "Recorder.train returned None: must be an agents.StageReport"),
        (lambda: (0.5, 0.25), r"Recorder.train returned \(0.5, 0.25\)"),
        (lambda: StageReport((), (), 1), r"StageReport\(validation_loss=\(\)\): must be a tuple with a number"),
        (lambda: StageReport(0.5, 0.25, 1), r"StageReport\(validation_loss=0.5\): must be a tuple with a number"),
        (lambda: StageReport((0.5,), (torch.zeros(2),), 1), "validation_error=.*must be a tuple with a number"),
        (lambda: StageReport((0.5, 0.4), (0.25,), 1), "2 values of validation_loss and 1 of validation_error"),
        (lambda: StageReport((0.5,), (0.25,), 2), "best_epoch=2.*: must be the number of the best epoch, 1 to 1"),
        (lambda: StageReport((0.5,), (0.25,), True), "best_epoch=True.*: must be the number of the best epoch, 1 to 1"),
        (lambda: StageReport((0.5,), (12.5,), 1), r"validation_error=\(12.5,\)\): 12.5 is no fraction; .* not percent"),
    ],
)
def test_a_wrong_report_of_a_training_is_refused(env, report, message):
    learner = Recorder()
    learner.train = lambda train, valid: report()
    agent = AnytimeAgent(learner, fixed_wait(1), TICKS)
    observation, _ = env.reset(seed=0)
    with pytest.raises(LearnerError, match=message):
        agent.observe(observation)


def test_tensors_without_dimensions_are_numbers_in_a_report(env):
    learner = Recorder()
    learner.train = lambda train, valid: StageReport((torch.tensor(0.5),), (np.float32(0.25),), 1)
    agent = AnytimeAgent(learner, fixed_wait(1), TICKS)
    observation, _ = env.reset(seed=0)
    agent.observe(observation)
    assert [type(value) for value in (agent.history[0].validation_loss, agent.history[0].validation_error)] == [
        float
    ] * 2
    assert (agent.history[0].validation_loss, agent.history[0].validation_error) == (0.5, 0.25)


@pytest.mark.parametrize("predictor", [None, torch.relu])
def test_a_predictor_that_is_no_module_is_refused(env, predictor):
    learner = Recorder()
    agent = AnytimeAgent(learner, fixed_wait(1), TICKS)
    learner.predictor = predictor
    observation, _ = env.reset(seed=0)
    with pytest.raises(LearnerError, match="Recorder.predictor=.*: must be a torch.nn.Module"):
        agent.observe(observation)
    with pytest.raises(LearnerError, match="Recorder.predictor=.*: must be a torch.nn.Module"):
        AnytimeAgent(learner, fixed_wait(1), TICKS)


def test_a_training_without_a_new_megabatch_is_refused(env):
    agent = AnytimeAgent(Recorder(), fixed_wait(1), TICKS)
    agent.gather(env.reset(seed=0)[0])
    agent.carry_out(Decision(train=True))
    with pytest.raises(ValueError, match=r"carry_out\(Decision.* at tick 1: no mega-batch has arrived .*call gather"):
        agent.carry_out(Decision(train=True))


@pytest.mark.parametrize("id", ["sm", "ens", "umix", "moe"])
def test_a_policy_that_grows_an_agent_of_a_fixed_size_is_named(env, id):
    def growing(progress):
        return Decision(train=True, grow=2)

    agent = agents.make(id, env, width=4, epochs=1, policy=growing)
    decided = r"policy growing \(test_anytime.py, line \d+\) returned Decision\(.*grow=2.*\) at tick 2"
    with pytest.raises(
        PolicyError, match=rf"{decided}: grow with agent '{id}': .*; use grow=0 .*\bor .*\b(gens|gmoe)\b"
    ):
        agents.run(env, agent, 0)


@pytest.mark.parametrize("replay", [False, True])
def test_a_stage_trains_on_the_gathered_or_with_replay_on_all_mega_batches(env, replay):
    learner = Recorder()
    agent = AnytimeAgent(learner, fixed_wait(4, replay=replay), TICKS)
    sizes = []
    for tick in range(1, TICKS + 1):
        env.reset(seed=0) if tick == 1 else env.step(None)
        observation = env.observation()
        sizes.append((len(observation["train"]["y"]), len(observation["valid"]["y"])))
        trained = agent.observe(observation)
        assert (trained is not None) == (tick in (4, 6))
    n, v = sizes[0]
    last = 6 if replay else 2
    assert learner.calls == [("train", 4 * n, 4 * v), ("train", last * n, last * v)]


@pytest.mark.parametrize(("window", "sizes"), [(1, [2, 3, 3]), (3, [2, 4, 5]), (100, [2, 4, 6])])
def test_a_window_of_replay_repeats_the_newest_earlier_mega_batches(env, window, sizes):
    learner = Recorder()
    agent = AnytimeAgent(learner, fixed_wait(2, replay=f"last:{window}"), TICKS)
    observation, _ = env.reset(seed=0)
    for tick in range(1, TICKS + 1):  # the images of mega-batch t are all t
        agent.observe({part: {**own, "x": np.full_like(own["x"], tick)} for part, own in observation.items()})
    n, v = (len(observation[part]["y"]) for part in ("train", "valid"))
    assert learner.calls == [("train", size * n, size * v) for size in sizes]
    newest = [list(range(tick - size + 1, tick + 1)) for tick, size in zip((2, 4, 6), sizes, strict=True)]
    assert [sorted(set(x.flatten().tolist())) for x in learner.inputs] == newest
    assert [record.megabatches for record in agent.history] == sizes
    assert [record.window for record in agent.history] == [window] * 3
    assert agent.progress().processed == sum(sizes)


def test_a_restart_comes_after_growth_and_never_before_the_first_stage(env):
    learner = Recorder()
    agent = AnytimeAgent(learner, lambda now: Decision(train=True, grow=True, restart=now.tick < 3), TICKS)
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        agent.observe(observation)
    assert [call[0] for call in learner.calls] == ["train", "grow", "restart", "train", "grow", "train"]
    assert [record.restart for record in agent.history] == [False, True, False]


@dataclass(frozen=True)
class Restarting:
    """Trains at every second tick with replay, and restarts before the stages that are listed, counted from 0."""

    stages: tuple[int, ...]
    grow: bool

    def __call__(self, now):
        return Decision(now.tick % 2 == 0, replay=True, grow=self.grow, restart=now.stages in self.stages)


@pytest.mark.parametrize("id", ["sm", "ens", "umix", "gmoe"])
def test_a_restart_at_every_stage_equals_training_from_scratch(env, id):
    """After a stage with a restart, a stage without one goes on from its weights."""
    settings = {"width": 4, "epochs": 2} | ({"members": 2} if id in ("ens", "umix") else {})

    def digests(*restarts, **keywords):
        policy = None if keywords else Restarting(restarts, grow=id == "gmoe")
        agent = agents.make(id, env, policy=policy, **settings, **keywords)
        return [row.digest for row in agents.run(env, agent, 0)]

    scratch = digests(wait=2, replay=True, from_scratch=True)
    assert digests(0, 1, 2) == scratch
    once, never = digests(1), digests()
    assert once[:6] == scratch[:6]
    assert once[6] != scratch[6]
    assert once[4] != never[4]


def test_a_growing_ensemble_restarts_its_newest_members_only(env):
    def members(*restarts):
        policy = lambda now: Decision(True, grow=now.stages == 1, restart=now.stages in restarts)  # noqa: E731
        agent = agents.make("gens", env, width=4, epochs=2, policy=policy)
        agents.run(env, agent, 0)
        assert [record.restart for record in agent.history] == [stage in restarts for stage in range(TICKS)]
        return [torch.nn.utils.parameters_to_vector(member.parameters()) for member in agent.predictor.members]

    (old, new), (same, other) = members(), members(2)
    assert torch.equal(old, same)
    assert not torch.equal(new, other)


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_restart_directly_after_growth_with_untrained_members_changes_nothing(env, warm_start):
    def digests(restart):
        policy = lambda now: Decision(True, grow=now.stages == 2, restart=restart and now.stages == 2)  # noqa: E731
        agent = agents.make("gens", env, width=4, epochs=2, policy=policy, warm_start=warm_start)
        return [row.digest for row in agents.run(env, agent, 0)]

    assert (digests(True) == digests(False)) is not warm_start


def test_growth_comes_before_training_and_never_before_the_first_stage(env):
    learner = Recorder()
    agent = AnytimeAgent(learner, lambda now: Decision(train=True, grow=True), TICKS)
    observation, _ = env.reset(seed=0)
    losses = []
    for _ in range(3):
        agent.observe(observation)
        losses.append(agent.progress().validation_loss)
    assert [call[0] for call in learner.calls] == ["train", "grow", "train", "grow", "train"]
    assert losses == [0.5] * 3


def test_between_stages_nothing_changes(env):
    ledger = play(env, wait=3)
    errors = [row.error for row in ledger]
    assert errors[0] == errors[1] == errors[2] != errors[3]
    assert errors[3] == errors[4] == errors[5] != errors[6]
    assert [row.comp > 0 for row in ledger] == [False, False, False, True, False, False, True]
    assert len({row.parameters for row in ledger}) == 1


def test_waiting_for_the_whole_stream_gives_one_stage_with_or_without_replay(env):
    tardy, tardy_replay = play(env, wait=TICKS), play(env, wait=TICKS, replay=True)
    assert [row.error for row in tardy] == [row.error for row in tardy_replay]
    assert sum(row.comp > 0 for row in tardy) == 1


def coarsened(env, wait):
    """Return a stream whose mega-batches each join ``wait`` consecutive ones, part by part."""

    class Coarse:
        def __len__(self):
            return env.ticks // wait

        def megabatch(self, tick):
            fine = [env.unwrapped._make_stream(0).megabatch(t) for t in range((tick - 1) * wait + 1, tick * wait + 1)]
            return {
                part: {name: np.concatenate([m[part][name] for m in fine]) for name in ("x", "y")}
                for part in ("train", "valid")
            }

    return Coarse()


def test_waiting_equals_the_greedy_learner_on_the_coarser_stream(env):
    wait = 3
    fine = play(env, wait=wait)
    coarse = alma_env.make("Digits-ALMA-v0", ticks=TICKS // wait)
    agent = agents.make("sm", coarse, width=8, epochs=3)
    coarse.reset(seed=0, options={"predictor": agent.predictor})
    stream, errors, flops = coarsened(env, wait), [], []
    for tick in (1, 2):
        with coarse.meter:
            predictor = agent.observe(stream.megabatch(tick))
        coarse.step(predictor)
        errors.append(coarse.ledger[tick].error)
        flops.append(coarse.ledger[tick].flops)
    assert errors == [fine[3].error, fine[6].error]
    assert flops == [fine[3].flops, fine[6].flops]


def test_paper_flops_do_not_depend_on_the_waiting_time_and_increase_with_replay(env):
    totals = {wait: play(env, wait=wait).score().paper_flops for wait in (1, 2, 6)}
    assert len(set(totals.values())) == 1
    stages = TICKS // 2
    replayed = play(env, wait=2, replay=True).score().paper_flops
    assert replayed * 2 == totals[2] * (stages + 1)


def test_the_charged_flops_of_one_stage_equal_the_sum_by_hand(env):
    row = play(env, wait=TICKS)[TICKS]
    n = env.examples_per_tick * TICKS * 3  # training examples, three epochs
    v = env.observation_space["valid"]["y"].shape[0] * TICKS * 3
    first, second, third = 64 * 8, 8 * 8, 8 * 10
    forward = 2 * (first + second + third)
    # Backward: the gradient of each weight, and of each input except that of the first layer.
    backward = 2 * (first + second + third) + 2 * (second + third)
    assert row.flops == {"training": n * (forward + backward), "validation": v * forward}


def test_no_test_example_influences_a_parameter():
    digests = []
    for shuffled in (False, True):
        x, y = alma_env.load("Digits").train_x, alma_env.load("Digits").train_y
        test_x, test_y = alma_env.load("Digits").test_x, alma_env.load("Digits").test_y
        test = (test_x, (test_y + 1) % 10 if shuffled else test_y)
        env = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=test, ticks=TICKS)
        digests.append([row.digest for row in play(env, wait=2)])
    assert digests[0] == digests[1]


def test_an_agent_with_replay_saved_at_any_tick_continues_with_the_same_numbers(goes_on_after_any_tick):
    goes_on_after_any_tick(
        lambda: alma_env.make("Digits-ALMA-v0", ticks=TICKS),
        lambda env: agents.make("sm", env, width=8, epochs=3, wait=2, replay=True),
    )


def test_from_scratch_uses_new_weights_and_all_data(env):
    warm, cold = (play(env, wait=2, replay=True, from_scratch=scratch) for scratch in (False, True))
    assert warm[2].error == cold[2].error
    assert warm[2].digest == cold[2].digest
    assert warm[4].digest != cold[4].digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "vgg"}, "agent 'vgg'.*sm"),
        ({"wait": 0}, "wait=0.*at least 1"),
        ({"wait": 7}, "wait=7.*6 mega-batches"),
        ({"epoch": 3}, "'epoch'.*hyper-parameter"),
        ({"epochs": 0}, "epochs=0"),
        ({"width": 0}, "width=0: the number of hidden units .* must be at least 1; the recipe has width=32"),
        ({"device": "quantum"}, "device='quantum'"),
        ({"wait": 2, "policy": fixed_wait(2)}, "wait=2.*policy"),
    ],
)
def test_a_wrong_keyword_raises_with_the_rule_and_the_remedy(env, settings, message):
    with pytest.raises(ValueError, match=message):
        agents.make(settings.pop("id", "sm"), env, **settings)
