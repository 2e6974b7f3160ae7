from .running import BASELINES as BASELINES
from .running import Runner as Runner
from .running import check_available as check_available
from .running import check_torch as check_torch
from .running import forecast as forecast
from .running import memory_used as memory_used
from .torch_lstm import COLUMN as COLUMN
from .torch_lstm import fit_by_torch as fit_by_torch
