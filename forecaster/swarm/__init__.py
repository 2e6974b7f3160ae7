"""Train many small independent models at once. Knows nothing of time or of stocks."""

from forecaster.swarm.checkpoint import Checkpoint as Checkpoint
from forecaster.swarm.fitting import Fitted as Fitted
from forecaster.swarm.fitting import Progress as Progress
from forecaster.swarm.fitting import fit as fit
from forecaster.swarm.keys import member_keys as member_keys
from forecaster.swarm.lanes import keep_compiled as keep_compiled
from forecaster.swarm.lanes import lane_mesh as lane_mesh
from forecaster.swarm.lanes import map_members as map_members
from forecaster.swarm.lanes import use_all_cores as use_all_cores
from forecaster.swarm.supervised import Supervised as Supervised
from forecaster.swarm.supervised import module_functions as module_functions
from forecaster.swarm.supervised import shuffled_batches as shuffled_batches
from forecaster.swarm.supervised import supervised as supervised
from forecaster.swarm.task import Task as Task
from forecaster.swarm.task import adam as adam
from forecaster.swarm.training import State as State
from forecaster.swarm.training import Status as Status
from forecaster.swarm.training import train_one as train_one
