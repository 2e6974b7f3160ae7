"""Checks of the examples that callers give, and their form in training."""

import numpy as np
import pytest

from forecaster.swarm import Shared, Streamed, Supervised, SwarmError, stack
from forecaster.swarm.training.examples import part, training_data, validated_data

IDS = ("A", "B")
X = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
Y = X[..., 0]


def test_members_of_unequal_length_are_padded_with_weight_zero():
    stacked, weight = stack([X[0], X[1, :2]])
    np.testing.assert_array_equal(stacked[0], X[0])
    np.testing.assert_array_equal(stacked[1], [*X[1, :2], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weight, [[1, 1, 1, 1], [1, 1, 0, 0]])
    with pytest.raises(SwarmError, match=r"differ: expected one shape; got \(4, 2\) \(member 1\)"):
        stack([X[0], X[1, :, :2]])


def test_the_weight_is_one_unless_given():
    for inputs, targets in ((X, Y), (Shared(X[0]), Shared(Y[0]))):
        weight = part(IDS, inputs, targets, None, "").weight
        assert isinstance(weight, Shared)
        np.testing.assert_array_equal(weight.values, np.ones(4))


def test_numbers_that_are_not_finite_matter_where_they_count():
    bad, weight = X.copy(), np.ones((2, 4), np.float32)
    bad[1, 2, 0] = np.nan
    with pytest.raises(SwarmError, match=r"inputs: .* first in member B, example 2 \(1 in all: B"):
        part(IDS, bad, Y, weight, "")
    part(IDS, bad, Y, weight, "", check=False)
    weight[1, 2] = 0
    part(IDS, bad, Y, weight, "")
    with pytest.raises(SwarmError, match=r"validation inputs: .* first in example 2\."):
        part(IDS, Shared(bad[1]), Shared(Y[1]), None, "validation ")


def test_validation_examples_have_the_shape_of_those_of_training():
    data = training_data(IDS, X, Y, None, (X[:, :2], Y[:, :2]), None)
    assert isinstance(data, Supervised)
    assert isinstance(data.validation_weight, Shared)
    np.testing.assert_array_equal(data.validation_weight.values, np.ones(2))
    with pytest.raises(SwarmError, match="training and validation inputs: single examples differ"):
        training_data(IDS, X, Y, None, (X[..., :2], Y), None)
    with pytest.raises(SwarmError, match=r"targets: expected 4 examples, as in the inputs; got 3"):
        training_data(IDS, X, Y[:, :3], None, None, None)


@pytest.mark.parametrize("given", [1, 2, 3])
def test_streams_may_leave_out_targets_and_weight(given):
    weight = np.full((2, 4), 0.5, np.float32)
    keys = np.arange(4, dtype=np.uint32).reshape(2, 2)

    def load(rows):
        return (X[rows], Y[rows], weight[rows])[:given] if given > 1 else X[rows]

    data = training_data(IDS, Streamed(load), None, None, None, keys)
    assert isinstance(data, Streamed)
    loaded = data.load(np.array([1]))
    np.testing.assert_array_equal(loaded.inputs, X[1:])
    assert (loaded.targets is None) == (given == 1)
    np.testing.assert_array_equal(loaded.weight, np.full((1, 4), 0.5 if given == 3 else 1.0))
    np.testing.assert_array_equal(loaded.bootstrap, keys[1:])


def test_each_member_has_validation_examples():
    none = np.array([[1, 1], [0, 0]], np.float32)
    rows = np.array([1, 0])
    for weight, name in ((none, "B"), (Shared(none, rows), "A"), (Shared(none[1]), "A, B")):
        data = training_data(IDS, X, Y, None, (X[:, :2], Y[:, :2], weight), None)
        with pytest.raises(SwarmError, match=rf"validation_data: .* got none for \d: {name}\. "):
            validated_data(IDS, data)


def test_each_member_of_a_stream_has_validation_examples():
    weight = np.array([[1, 1], [0, 0]], np.float32)

    def load(rows):
        used = np.ones((len(rows), 4), np.float32)
        return Supervised(X[rows], Y[rows], used, X[rows, :2], Y[rows, :2], weight[rows])

    stream = validated_data(IDS, Streamed(load))
    assert isinstance(stream, Streamed)
    stream.load(np.array([0]))
    with pytest.raises(SwarmError, match=r"validation_data: .* got none for 1: B\. "):
        stream.load(np.array([1, 0]))


@pytest.mark.parametrize("rows", [[0, 9], np.array([-1, 0]), np.zeros(3, int), [[0], [1]]])
def test_rows_of_shared_examples_are_checked_wherever_they_come_in(rows):
    with pytest.raises(SwarmError, match="rows of inputs: expected"):
        part(IDS, Shared(X, rows), None, None, "")
    with pytest.raises(SwarmError, match="rows of targets: expected"):
        part(IDS, X, Shared(Y, rows), None, "")
    with pytest.raises(SwarmError, match="rows of sample_weight: expected"):
        part(IDS, X, Y, Shared(np.ones((2, 4)), rows), "")


def test_rows_may_be_a_list():
    shared = part(IDS, Shared(X, [1, 0]), None, None, "").inputs
    np.testing.assert_array_equal(shared.rows, [1, 0])


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf])
def test_weights_are_finite_and_not_negative(bad):
    weight = np.ones((2, 4), np.float32)
    weight[1, 2] = bad
    match = "sample_weight: expected finite numbers of 0.0 or more; got .*, first in "
    for check in (True, False):
        with pytest.raises(SwarmError, match=match + "member B, example 2"):
            part(IDS, X, Y, weight, "", check=check)
    with pytest.raises(SwarmError, match=match + "example 2"):
        part(IDS, X, Y, Shared(weight[1]), "")
    streamed = training_data(
        IDS, Streamed(lambda rows: (X[rows], Y[rows], weight[rows])), *[None] * 4
    )
    assert isinstance(streamed, Streamed)
    with pytest.raises(SwarmError, match=match + "member B, example 2"):
        streamed.load(np.array([1]))


def test_what_is_no_array_of_numbers_is_named():
    for given, match in (
        (X.astype(object), "inputs: expected numbers; got an array of object"),
        (X.astype(str), "inputs: expected numbers; got an array of <U"),
        (X[:, :0], "inputs: expected at least one example"),
        ([], "inputs: expected an array per member; got an empty list"),
        (Shared(Shared(X[0])), r"expected arrays in Shared\(...\); got Shared in Shared"),
    ):
        with pytest.raises(SwarmError, match=match):
            part(IDS, given, None, None, "")
    for weight in (np.ones((2, 4, 1)), Shared(np.ones((4, 1)))):
        with pytest.raises(SwarmError, match=r"sample_weight: expected shape \(.*example.*; got"):
            part(IDS, X, Y, weight, "")
    with pytest.raises(SwarmError, match="arrays: expected one per member; got none"):
        stack([])
