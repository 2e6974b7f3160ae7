"""What a forecast has to be better than: simple, statistical and volatility models, per series."""

from forecaster.evaluation.baselines.running import BASELINES as BASELINES
from forecaster.evaluation.baselines.running import Runner as Runner
from forecaster.evaluation.baselines.running import check_available as check_available
from forecaster.evaluation.baselines.running import check_torch as check_torch
from forecaster.evaluation.baselines.running import forecast as forecast
