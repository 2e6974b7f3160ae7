"""Parts of rows: all of them, in order, whichever thread works on them."""

import threading

import numpy as np
import pytest

from forecaster.machine import by_parts


@pytest.mark.parametrize("threads", [1, 3, None])
def test_the_results_are_in_the_order_of_the_parts(threads):
    rows = list(range(10))
    assert by_parts(lambda some: rows[some], 10, 4, threads) == [rows[:4], rows[4:8], rows[8:]]
    assert by_parts(lambda some: rows[some], 4, 4, threads) == [rows[:4]]
    assert by_parts(lambda some: rows[some], 0, 4, threads) == []


def test_several_threads_work_at_the_same_time():
    together = threading.Barrier(2, timeout=30)
    by_parts(lambda _: together.wait(), 2, 1, threads=2)  # raises unless both are there


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_part_is_raised(threads):
    def odd(some: slice) -> None:
        if some.start == 3:
            raise ValueError("in the fourth part")

    with pytest.raises(ValueError, match="in the fourth part"):
        by_parts(odd, 8, 1, threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_numpy_treats_errors_as_the_caller_said(threads):
    def log_of_zero(_: slice) -> None:
        np.log(np.zeros(1))

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        by_parts(log_of_zero, 2, 1, threads)
