"""An honest run has no finding, and its ledger is that of a local run."""

from __future__ import annotations

from leaderboard.sandbox.sandbox import ISOLATED

from .gallery import codes


def test_the_ledger_of_an_honest_learner_equals_that_of_a_local_run(run, env, tmp_path):
    sandboxed_run = run("")
    assert sandboxed_run.failure is None
    assert sandboxed_run.level == ISOLATED
    assert codes(sandboxed_run) == set()

    names: dict = {}
    exec(compile((tmp_path / "submission" / "agent.py").read_text(), "agent.py", "exec"), names)
    env.run_seed = 0
    learner = names["make_agent"](env)
    observation, _ = env.reset(seed=0, options={"predictor": learner.predictor})
    while not env.done:
        with env.meter:
            predictor = learner.observe(observation)
        observation, *_ = env.step(predictor)
    columns = ("tick", "error", "parameters", "buffers", "inference_flops", "flops", "paper_flops", "refused")
    assert [[getattr(row, name) for name in columns] for row in sandboxed_run.ledger] == [
        [getattr(row, name) for name in columns] for row in env.ledger
    ]
