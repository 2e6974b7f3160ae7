from .comparison import METHODS as METHODS
from .comparison import Result as Result
from .comparison import available as available
from .comparison import compare as compare
from .comparison import suite as suite
from .job import Job as Job
