"""Learning when to wait: the stream as a reinforcement-learning problem with numeric observations and few actions.

The environments are registered by `alma_env` (``gymnasium.make("alma_env:MNIST-ALMA-Wait-v0")``); here is what they are
made of.
"""

from agents.waiting.environment import WaitEnv

__all__ = ["WaitEnv"]
