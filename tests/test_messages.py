"""Messages may be reworded; what they name stays."""

import re

import pytest

from tests import messages

SAID = "a.csv, line 47: 'ten' is not a number; expected one such as 1234.5. Add --decimal , or NaN"


@pytest.fixture
def kept(monkeypatch, tmp_path, request):
    """A file with one message, that of the test itself."""
    monkeypatch.setattr(messages, "FILE", tmp_path / "messages.txt")
    monkeypatch.setattr(messages, "seen", {})
    monkeypatch.delenv(messages.RECORDED, raising=False)
    said = {
        "tests/a.py::test_b[c (d)]": [("ValueError", "twice\nin two lines")] * 2,
        request.node.nodeid: [("ValueError", f"{SAID}\n\n  and more")],
    }
    messages.write(said)
    return said


def test_the_file_is_read_as_it_was_written(kept):
    assert messages.read() == kept


def test_a_message_may_be_reworded(kept):
    with messages.refuses(ValueError):
        raise ValueError(
            "--decimal , is missing, or NaN: line 47 of a.csv holds 'ten', no number like 1234.5"
        )


@pytest.mark.parametrize("lost", ["a.csv", "47", "'ten'", "1234.5", "--decimal"])
def test_a_message_that_names_less_fails(kept, lost):
    name = re.escape(lost.strip("'"))
    with (
        pytest.raises(AssertionError, match=rf"no longer names {name}:"),
        messages.refuses(ValueError),
    ):
        raise ValueError(SAID.replace(lost, "something"))


def test_a_message_that_nobody_read_fails(kept):
    with messages.refuses(ValueError):
        raise ValueError(SAID)
    with (
        pytest.raises(AssertionError, match="no message 2 of"),
        messages.refuses(ValueError),
    ):
        raise ValueError(SAID)


def test_each_message_is_of_a_test_that_is_there():
    assert not [test for test in messages.read() if not messages.there(test)]
