"""Metering of FLOPs: the meter, the costs of operations, and the record of which tensors metered operations made.

`alma_env.meter` is this package.

>>> import torch
>>> from alma_env import meter
>>> meter.count(torch.mm, torch.ones(2, 3), torch.ones(3, 5)).total
60
"""

from typing import TYPE_CHECKING

from alma_env import lazy_names

if TYPE_CHECKING:
    from alma_env.metering.function_cost import cost_varies_with as cost_varies_with
    from alma_env.metering.function_cost import count as count
    from alma_env.metering.function_cost import count_once as count_once
    from alma_env.metering.meter import Meter as Meter
    from alma_env.metering.meter import phase as phase
    from alma_env.metering.meter import running as running
    from alma_env.metering.tally import Charge as Charge

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, {"cost_table": "costs.cost_table"})
