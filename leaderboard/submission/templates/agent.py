"""A submission to the leaderboard of alma-env: an agent for one environment.

The verification imports this file, calls `make_agent` once per seed, and takes the agent through the stream of that
seed. It holds the test set itself; what is computed here is metered.
"""

import agents


def make_agent(env):
    """The agent that is judged: the paper's single model, which trains on five mega-batches at a time.

    Args:
        env: tells the shapes, the normalisation, the number of mega-batches, and `run_seed`, the seed of the run.

    An agent of your own is any object with a method `observe(observation)` that returns the predictor to deploy at this
    tick, a `torch.nn.Module` from raw inputs to logits, or None to keep the one before; and an attribute `predictor`,
    which answers at tick 0, before any data:

        class MyAgent:
            def __init__(self, env):
                self.predictor = ...  # untrained

            def observe(self, observation):
                x, y = observation["train"]["x"], observation["train"]["y"]  # NumPy arrays; also observation["valid"]
                ...  # wait, or train self.predictor with PyTorch
                return self.predictor

    Draw random numbers from a generator that you seed with env.run_seed, and a second run gives the same numbers.
    """
    return agents.make("sm", env, width=32, wait=5, seed=env.run_seed)
