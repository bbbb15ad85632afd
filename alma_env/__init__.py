"""alma-env: a benchmark for anytime learning at macroscale (ALMA, arXiv 2106.09563).

>>> import alma_env
>>> env = alma_env.make("Digits-ALMA-v0")
>>> observation, info = env.reset(seed=0)
>>> observation["train"]["x"].dtype, sorted(observation)
(dtype('uint8'), ['train', 'valid'])
"""

from typing import TYPE_CHECKING

from alma_env import lazy_names
from alma_env.registration import register_all

if TYPE_CHECKING:  # the public names; each is imported on first use
    from alma_env.construction import make as make
    from alma_env.data.arrays import from_arrays as from_arrays
    from alma_env.data.datasets import DataSet as DataSet
    from alma_env.data.datasets import load as load
    from alma_env.data.paths import from_path as from_path
    from alma_env.data.rows import from_dataset as from_dataset
    from alma_env.data.stream import Stream as Stream
    from alma_env.data.stream import partition as partition
    from alma_env.env import AlmaEnv as AlmaEnv
    from alma_env.errors import AlmaError as AlmaError
    from alma_env.errors import DataUnavailableError as DataUnavailableError
    from alma_env.errors import PredictorError as PredictorError
    from alma_env.errors import UnknownCostError as UnknownCostError
    from alma_env.errors import UnmeteredTrainingError as UnmeteredTrainingError
    from alma_env.ledger import Ledger as Ledger
    from alma_env.ledger import Row as Row
    from alma_env.ledger import Score as Score
    from alma_env.registration import register_all as register_all
    from alma_env.scoring.ensemble import Ensemble as Ensemble
    from alma_env.scoring.spaces import PredictorSpace as PredictorSpace
    from alma_env.scoring.spaces import UntrainedPredictor as UntrainedPredictor

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, {"meter": "metering", "flops": "metering.costs.cost_table"})

register_all()
