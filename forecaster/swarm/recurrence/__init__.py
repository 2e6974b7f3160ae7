"""Recurrences over time for one model: pure functions that ``vmap`` turns into many."""

from forecaster.swarm.recurrence.gru import gru as gru
from forecaster.swarm.recurrence.gru import jax_gru as jax_gru
from forecaster.swarm.recurrence.lstm import jax_lstm as jax_lstm
from forecaster.swarm.recurrence.lstm import lstm as lstm
