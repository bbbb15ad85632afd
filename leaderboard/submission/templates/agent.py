"""A submission to the leaderboard of alma-env: an agent for one environment.

For every seed, a verification imports this file in a sandbox, calls `make_agent`, and runs the agent on the stream of
that seed. The computation of the agent is metered. The test set is not in the sandbox.
"""

import agents


def make_agent(env):
    """Return the agent: the paper's single model, trained on five mega-batches at a time.

    Args:
        env: the environment. It has the shapes, the normalization, the number of mega-batches, and `run_seed`, the seed
            of the run.

    Your own agent is any object with a method `observe(observation)` and an attribute `predictor`. At every tick,
    `observe` returns the predictor to deploy, or None to keep the deployed one. A predictor is a `torch.nn.Module` from
    raw inputs to logits. The attribute `predictor` is deployed at tick 0, before any data:

        class MyAgent:
            def __init__(self, env):
                self.predictor = ...  # untrained

            def observe(self, observation):
                x, y = observation["train"]["x"], observation["train"]["y"]  # NumPy arrays; also observation["valid"]
                ...  # wait, or train self.predictor with PyTorch
                return self.predictor

    Draw random numbers from a generator that you seed with env.run_seed: then every run of a seed gives equal numbers.
    """
    return agents.make("sm", env, width=32, wait=5, seed=env.run_seed)
