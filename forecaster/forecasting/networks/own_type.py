"""The type of a user's own networks, in a module that does not load Flax."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from flax import linen, nnx

    OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]
else:
    OwnNetwork: TypeAlias = type
