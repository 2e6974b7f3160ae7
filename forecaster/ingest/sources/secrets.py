"""Take the secrets of a URL from the environment, and keep them out of messages."""

import os
import re
import urllib.parse
from collections.abc import Iterable

from forecaster.errors import UsageError

HIDDEN = "***"
"""The text that stands for a secret in names and messages."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_USERINFO = re.compile(r"^[\w+]+://[^/@]*@")


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return text with :data:`HIDDEN` in place of secrets, as they are and as in a URL.

    Two characters or fewer tell nothing, and stay.
    """
    texts = {form for secret in secrets for form in (secret, urllib.parse.unquote(secret))}
    texts |= {urllib.parse.quote(secret, safe=safe) for secret in texts for safe in ("", "/")}
    for secret in sorted(texts, key=len, reverse=True):
        if len(secret) > 2:
            text = text.replace(secret, HIDDEN)
    return text


def fill_in(text: str, what: str) -> str:
    """Return a URL with ``${NAME}`` replaced from the environment, quoted where a URL needs it.

    ``what``: the option, for the error if a variable is not set
    """

    def value(match: re.Match[str]) -> str:
        if (value := os.environ.get(name := match[1])) is None:
            raise UsageError(
                f"{what}: the URL names ${{{name}}}, which is not set in the environment"
            )
        is_quoted = match.start() < end or "?" in text[end : match.start()]
        return urllib.parse.quote(value, safe="") if is_quoted else value

    end = found.end() if (found := _USERINFO.match(text)) else 0
    return _VARIABLE.sub(value, text)


def values_in(text: str) -> list[str]:
    """Return the values of ``${NAME}`` in a URL, as far as the environment has them."""
    return [os.environ[name] for name in _VARIABLE.findall(text) if os.environ.get(name)]


def hide_secrets(source: str) -> str:
    """Return the name of a source as typed, without what may be a secret."""
    if "://" not in source:
        return source
    source = re.sub(r"://.*@", f"://{HIDDEN}@", source, flags=re.DOTALL)
    return re.sub(r"\?[^#]*", "", source)
