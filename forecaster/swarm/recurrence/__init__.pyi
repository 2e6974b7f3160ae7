from .gru import gru as gru
from .gru import jax_gru as jax_gru
from .lstm import jax_lstm as jax_lstm
from .lstm import lstm as lstm
from .native import kernel_status as kernel_status
