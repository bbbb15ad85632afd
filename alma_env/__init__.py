"""alma-env: a benchmark for anytime learning at macroscale (ALMA, arXiv 2106.09563).

>>> import alma_env
>>> env = alma_env.make("Digits-ALMA-v0")
>>> observation, info = env.reset(seed=0)
>>> observation["train"]["x"].dtype, sorted(observation)
(dtype('uint8'), ['train', 'valid'])
"""

from alma_env.data import DataSet, from_arrays, load
from alma_env.ensemble import Ensemble
from alma_env.env import AlmaEnv
from alma_env.errors import (
    AlmaError,
    DataUnavailableError,
    PredictorError,
    UnknownCostError,
    UnmeteredTrainingError,
)
from alma_env.ledger import Ledger, Row, Score
from alma_env.registration import make, register_all
from alma_env.shared import Shares, shared
from alma_env.spaces import PredictorSpace, UntrainedPredictor
from alma_env.stream import Stream, partition

__version__ = "0.1.0"

__all__ = [
    "AlmaEnv",
    "AlmaError",
    "DataSet",
    "DataUnavailableError",
    "Ensemble",
    "Ledger",
    "PredictorError",
    "PredictorSpace",
    "Row",
    "Score",
    "Shares",
    "Stream",
    "UnknownCostError",
    "UnmeteredTrainingError",
    "UntrainedPredictor",
    "from_arrays",
    "load",
    "make",
    "partition",
    "register_all",
    "shared",
]

register_all()
