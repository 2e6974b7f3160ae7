"""How a scan over time is cut up, by where it runs and how long it is."""

import jax

_WHOLE, _PART = 64, 16


def steps_per_iteration(steps: int) -> int:
    """Steps of time that one iteration of a scan does; more than one also hoists the inputs' part.

    On CPUs one: measured 5 to 50 % slower otherwise. On GPUs an iteration is a few launches of
    kernels that last no longer than a launch, so short windows are unrolled whole, and longer ones
    in parts, which keeps the program and its compilation small.
    """
    if jax.default_backend() == "cpu":
        return 1
    return max(1, steps if steps <= _WHOLE else _PART)
