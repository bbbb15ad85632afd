"""Learning when to wait: the stream as a reinforcement-learning problem with numeric observations and few actions.

Importing this package registers the environments with Gymnasium.
"""

from typing import TYPE_CHECKING

from agents.rl.registration import register
from alma_env import lazy_names

if TYPE_CHECKING:  # the public names; each is imported on first use
    from agents.rl.saving import save_policy as save_policy
    from agents.rl.wait_env import WaitEnv as WaitEnv

__getattr__, __dir__, __all__ = lazy_names.attach(__name__)

register()
