"""The type of a user's own networks, apart from them: what only names it need not load Flax."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from flax import linen, nnx

    OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]
else:
    OwnNetwork: TypeAlias = type
