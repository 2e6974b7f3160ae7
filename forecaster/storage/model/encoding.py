"""Encode the arrays of a model: unchanged, in half precision, as bytes, or pruned.

Int8: each column of a matrix has its own scale, its largest weight over 127, symmetric and per
channel as in Jacob et al. (2018), arXiv 1712.05877. Pruning leaves out the smallest weights of each
matrix (Han et al. 2015, arXiv 1506.02626), without training again. Arithmetic stays in float32:
only the file is smaller, a forecast is not faster.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How the arrays of a model are written.

    Only matrices, arrays (series, input, output), are encoded; biases and constants stay unchanged.

    - ``weights``: the type of weights in the file
    - ``pruned``: the share of each matrix's weights that is left out, the smallest ones
    - ``scores``: the type in the file of the normal scores that bands are calibrated on
    """

    weights: Literal["float32", "float16", "int8"] = "float32"
    pruned: float = 0.0
    scores: Literal["float32", "float16"] = "float32"

    def __post_init__(self):
        if self.weights not in ("float32", "float16", "int8") or not 0 <= self.pruned < 1:
            raise ValueError(f"not an encoding: {self}")

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

    def read(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Decode the arrays of a file to float32, the reverse of :meth:`write`."""
        out = {}
        for name, leaf in arrays.items():
            if name.startswith(("params/", "start/")):
                out[name] = self._read(name, leaf, arrays)
            elif name == "scores":
                out[name] = leaf.astype(np.float32)
            elif name.startswith("drift/"):
                out[name] = leaf
        return out

    def layout(self, name: str, shape: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return by name the shapes and types of the file's arrays for weights (series, ...)."""
        if len(shape) < 3:
            return {name: (shape, "float32")}
        series, *matrix = shape
        out: dict[str, tuple[tuple[int, ...], str]] = {name: (shape, self.weights)}
        if self.pruned:
            size = math.prod(matrix)
            out[name] = ((series, size - int(self.pruned * size)), self.weights)
            out[f"kept/{name}"] = ((series, -(-size // 8)), "uint8")
            out[f"shape/{name}"] = ((series, len(matrix)), "int32")
        if self.weights == "int8":
            out[f"scale/{name}"] = ((series, 1, *matrix[1:]), "float32")
        return out

    def check_kept(
        self, name: str, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Raise ValueError unless the kept weights of a pruned array (series, ...) fit its shape.

        The arrays have the shapes and types of :meth:`layout`.
        """
        if f"kept/{name}" not in arrays:
            return
        if (arrays[f"shape/{name}"] != shape[1:]).any():
            raise ValueError(f"shape/{name}: expected {shape[1:]} for each series")
        bits = np.unpackbits(arrays[f"kept/{name}"], axis=1, count=math.prod(shape[1:]))
        if (bits.sum(1, dtype=int) != arrays[name].shape[1]).any():
            raise ValueError(
                f"kept/{name}: expected {arrays[name].shape[1]} weights of each series"
            )

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
            # The shape of one series' matrix, which the flat values do not show.
            out[f"shape/{name}"] = np.tile(np.array(leaf.shape[1:], np.int32), (len(leaf), 1))
            values = values.reshape(kept.shape)[kept].reshape(len(leaf), -1)
        return {**out, name: values}

    def _read(self, name: str, leaf: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        values = leaf
        if f"kept/{name}" in arrays:
            shape = tuple(int(size) for size in arrays[f"shape/{name}"][0])
            bits = np.unpackbits(arrays[f"kept/{name}"], axis=1, count=int(np.prod(shape)))
            full = np.zeros(bits.shape, leaf.dtype)
            full[bits.astype(bool)] = leaf.reshape(-1)
            values = full.reshape(len(leaf), *shape)
        values = values.astype(np.float32)
        scale = arrays.get(f"scale/{name}")
        return values if scale is None else values * scale


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
