"""Encode the arrays of a model: unchanged, in half precision, as bytes, or pruned.

Int8: each column of a matrix has its own scale, its largest weight over 127, symmetric and per
channel as in Jacob et al. (2018), arXiv 1712.05877. Pruning leaves out the smallest weights of each
matrix (Han et al. 2015, arXiv 1506.02626), without training again. Arithmetic stays in float32:
only the file is smaller, a forecast is not faster.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
import numpy as np

ENCODED = ("kept/", "shape/", "scale/")
"""What the names of arrays begin with that encoded weights have beside them. Shapes, which earlier
versions wrote, are not read."""


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How the arrays of a model are written.

    Only matrices, arrays (series, input, output), are encoded; biases and constants stay unchanged.

    - ``weights``: the type of weights in the file
    - ``pruned``: the share of each matrix's weights that is left out, the smallest ones
    - ``scores``: the type in the file of the normal scores that bands are calibrated on
    """

    weights: Literal["float32", "float16", "int8"] = "float32"
    pruned: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    scores: Literal["float32", "float16"] = "float32"

    def write(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encode the arrays of a model, by name, for a file."""
        out: dict[str, np.ndarray] = {}
        for name, leaf in arrays.items():
            if name == "scores":
                out[name] = leaf.astype(self.scores)
            elif leaf.ndim < 3:
                out[name] = leaf
            else:
                out |= self._write(name, leaf)
        return out

    def read(
        self, name: str, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Decode weights (series, ...) of a file to float32, the reverse of :meth:`write`.

        Raises ValueError unless they have the shape.
        """
        values = arrays[name]
        if (kept := arrays.get(f"kept/{name}")) is not None:
            size = math.prod(shape[1:])
            if kept.shape != (shape[0], -(-size // 8)):
                raise ValueError(f"kept/{name}: expected {size} bits for each series")
            full = np.zeros((shape[0], size), values.dtype)
            full[np.unpackbits(kept, axis=1, count=size).astype(bool)] = values.reshape(-1)
            values = full.reshape(shape)
        values = values.astype(np.float32)
        if (scale := arrays.get(f"scale/{name}")) is not None:
            values = values * scale
        if values.shape != shape:
            raise ValueError(f"{name}: expected weights {shape}; got {values.shape}")
        return values

    def _write(self, name: str, leaf: np.ndarray) -> dict[str, np.ndarray]:
        out, values = {}, leaf
        if self.weights == "int8":
            scale = np.abs(leaf).max(axis=1, keepdims=True) / 127
            scale = np.where(scale > 0, scale, 1.0).astype(np.float32)
            values = np.rint(leaf / scale).astype(np.int8)
            out[f"scale/{name}"] = scale
        elif self.weights == "float16":
            values = leaf.astype(np.float16)
        if self.pruned:
            sizes = np.abs(leaf).reshape(len(leaf), -1)
            count = int(self.pruned * sizes.shape[1])
            least = np.argsort(sizes, axis=1, kind="stable")[:, :count]
            kept = np.ones(sizes.shape, bool)
            np.put_along_axis(kept, least, False, axis=1)
            out[f"kept/{name}"] = np.packbits(kept, axis=1)
            values = values.reshape(kept.shape)[kept].reshape(len(leaf), -1)
        return {**out, name: values}


METHODS = {
    "none": Encoding(),
    "float16": Encoding("float16"),
    "int8": Encoding("int8"),
    "pruned-50": Encoding(pruned=0.5),
    "pruned-80": Encoding(pruned=0.8),
    "int8-pruned-50": Encoding("int8", 0.5),
    "small": Encoding("int8", scores="float16"),
}
"""The encodings of a model's weights; ``small`` also writes in half precision the scores that bands
are calibrated on."""
