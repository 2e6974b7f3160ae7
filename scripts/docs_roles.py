"""Turn roles in docstrings, such as ``:func:`forecaster.fit```, into links of the site.

mkdocstrings loads this file as an extension of griffe; see zensical.toml.
"""

import re

import griffe

_ROLE = re.compile(r":(?:mod|func|class|meth|attr|data|exc):`~?([\w.]+)`")


class Roles(griffe.Extension):
    """Rewrite docstrings as they are read from the sources."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Replace the roles in an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: _link(role[1], obj), obj.docstring.value)


def _link(name: str, obj: griffe.Object) -> str:
    """Return the name as code, linked if the site has an entry for it."""
    full = next((path for path in _meanings(name, obj)), name)
    return f'<autoref identifier="{full}" optional><code>{name}</code></autoref>'


def _meanings(name: str, obj: griffe.Object) -> list[str]:
    """Return the full names that a name in a docstring can mean, the likeliest first."""
    if name.startswith("forecaster."):
        return [name]
    scope = obj if obj.is_class or obj.is_module else obj.parent
    members = [f"{scope.path}.{name}"] if scope is not None and name in scope.members else []
    known = [obj.resolve(name.split(".")[0])] if _resolves(obj, name.split(".")[0]) else []
    rest = name.partition(".")[2]
    return members + [f"{path}.{rest}" if rest else path for path in known] + [f"forecaster.{name}"]


def _resolves(obj: griffe.Object, name: str) -> bool:
    try:
        obj.resolve(name)
    except griffe.NameResolutionError:
        return False
    return True
