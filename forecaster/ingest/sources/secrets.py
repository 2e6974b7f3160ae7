"""Take the secrets of a URL from the environment, and keep them out of messages."""

import os
import re
import urllib.parse
from collections.abc import Sequence

from forecaster.errors import UsageError

HIDDEN = "***"
"""The text that stands for a secret in names and messages."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_USERINFO = re.compile(r"^[\w+]+://[^/@]*@")


def hide(text: str, secrets: Sequence[str]) -> str:
    """Return text with :data:`HIDDEN` in place of secrets, the longest of them first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def fill_in(text: str, what: str) -> str:
    """Return a URL with ``${NAME}`` replaced from the environment, quoted where a URL needs it.

    ``what``: the option, for the error if a variable is not set
    """

    def value(match: re.Match[str]) -> str:
        return _value(match[1], what)

    def quoted(match: re.Match[str]) -> str:
        return urllib.parse.quote(value(match), safe="")

    if text.startswith("${"):
        return _VARIABLE.sub(value, text)
    end = found.end() if (found := _USERINFO.match(text)) else 0
    address, mark, options = text[end:].partition("?")
    return (
        _VARIABLE.sub(quoted, text[:end])
        + _VARIABLE.sub(value, address)
        + mark
        + _VARIABLE.sub(quoted, options)
    )


def values_in(text: str) -> list[str]:
    """Return the values of ``${NAME}`` in a URL, as far as the environment has them."""
    return [os.environ[name] for name in _VARIABLE.findall(text) if os.environ.get(name)]


def _value(name: str, what: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise UsageError(f"{what}: the URL names ${{{name}}}, which is not set in the environment")
    return value
