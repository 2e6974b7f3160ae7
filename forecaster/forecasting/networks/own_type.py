"""The type of a user's own networks. It stands apart so that naming it does not load Flax."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from flax import linen, nnx

    OwnNetwork: TypeAlias = type[linen.Module] | type[nnx.Module]
else:
    OwnNetwork: TypeAlias = type
