"""The same training, done by this program, by PyTorch and by a plain ``vmap``, and timed."""

from forecaster.benchmark.comparison import METHODS as METHODS
from forecaster.benchmark.comparison import Result as Result
from forecaster.benchmark.comparison import available as available
from forecaster.benchmark.comparison import compare as compare
from forecaster.benchmark.comparison import scaling as scaling
from forecaster.benchmark.comparison import suite as suite
from forecaster.benchmark.job import Job as Job
