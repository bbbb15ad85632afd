"""Learning when to wait: the stream as a reinforcement-learning problem with numeric observations and few actions.

Importing this package registers the environments with Gymnasium.
"""

from typing import TYPE_CHECKING

from agents.rl.registration import register
from alma_env import lazy_names

if TYPE_CHECKING:  # the public names; each is imported on first use
    from agents.rl.environments.decision_env import DecisionEnv as DecisionEnv
    from agents.rl.environments.wait_env import WaitEnv as WaitEnv
    from agents.rl.learning.saving import save_policy as save_policy
    from agents.rl.learning.sb3 import SurrogateVecEnv as SurrogateVecEnv
    from agents.rl.learning.train import train_policy as train_policy
    from agents.rl.models.learning_curve import curves_for as curves_for
    from agents.rl.surrogates.decision_surrogate import DecisionSurrogateEnv as DecisionSurrogateEnv
    from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv as DecisionSurrogateVectorEnv
    from agents.rl.surrogates.next_training_env import NextTrainingVectorEnv as NextTrainingVectorEnv
    from agents.rl.surrogates.surrogate import SurrogateEnv as SurrogateEnv
    from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv as SurrogateVectorEnv

__getattr__, __dir__, __all__ = lazy_names.attach(
    __name__,
    {
        "decision_env": "environments.decision_env",
        "decision_surrogate": "surrogates.decision_surrogate",
        "learning_curve": "models.learning_curve",
        "models.recordings": "recorded.recordings",
        "next_training_env": "surrogates.next_training_env",
        "recordings": "recorded.recordings",
        "saving": "learning.saving",
        "sb3": "learning.sb3",
        "surrogate": "surrogates.surrogate",
        "surrogate_vector": "surrogates.surrogate_vector",
        "train": "learning.train",
        "wait_env": "environments.wait_env",
    },
)

register()
