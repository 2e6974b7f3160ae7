from .gru import gru as gru
from .gru import jax_gru as jax_gru
from .lstm import jax_lstm as jax_lstm
from .lstm import lstm as lstm
from .products import processor_status as processor_status
from .products import products_of as products_of
from .running import check_precision as check_precision
