from .day import run_day as run_day
from .day_summary import Summary as Summary
from .day_summary import last_days as last_days
from .watch import EXAMPLE as EXAMPLE
from .watch import Limits as Limits
from .watch import Watch as Watch
from .watch import read_watch as read_watch
