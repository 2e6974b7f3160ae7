"""Mutants of a saved model: what a disk, an editor or an attacker could make of its two files."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

JSON, ARRAYS = "model.json", "model.safetensors"
_DEEP = 100_000
_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308, "", "x",
    "NaN", "now", "2024-01-01", "9999-12-31", "B", "D", "lstm", "float16", [], {}, [[]], {"a": {}},
    [None], ["a"], "\ud800", "\x1b[2J", "a" * 10_000,
]  # fmt: skip
_NUMBERS = ["1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1" * 5000, "[" * _DEEP, "tru"]
_KINDS = ["F64", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "F8_E4M3", "C64", "?"]


def mutate(folder: Path, random: np.random.Generator) -> str:
    """Change a folder's files in one way or more, and say how."""
    done = []
    for _ in range(1 if random.random() < 0.8 else 3):
        change = _CHANGES[random.integers(len(_CHANGES))]
        try:
            done.append(f"{change.__name__}: {change(folder, random)}")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error):
            if not done:  # otherwise too little is left to be changed further
                raise
    return "; ".join(done)


def change_json(path: Path, random: np.random.Generator) -> str:
    """Change one entry of a JSON file, and say how."""
    rest = json.loads(path.read_bytes())
    how = _change_entry(rest, random)
    path.write_text(json.dumps(rest))
    return how


def _any_bytes(folder: Path, random: np.random.Generator) -> str:
    """Bytes of a file, here and there; of the arrays with the hash that then is right."""
    path = folder / (JSON if random.random() < 0.3 else ARRAYS)
    raw = bytearray(path.read_bytes())
    where = [int(at) for at in random.integers(len(raw), size=random.integers(1, 5))]
    for at in where:
        raw[at] = random.integers(256)
    path.write_bytes(bytes(raw))
    if path.name == ARRAYS:
        sign(folder)
    return f"{path.name} at {where}"


def _header_bytes(folder: Path, random: np.random.Generator) -> str:
    """Bytes of the header of the arrays, or of the length that it says it has."""
    raw = bytearray((folder / ARRAYS).read_bytes())
    at = int(random.integers(8 + struct.unpack("<Q", raw[:8])[0]))
    raw[at] = random.integers(256)
    (folder / ARRAYS).write_bytes(bytes(raw))
    sign(folder)
    return str(at)


def _header_fields(folder: Path, random: np.random.Generator) -> str:
    """Types, shapes and places of arrays."""
    header, data = _arrays(folder)
    name = str(random.choice([name for name in header if name != "__metadata__"]))
    choice = int(random.integers(6))
    if choice == 0:
        header[name]["dtype"] = str(random.choice(_KINDS))
    elif choice == 1:
        header[name]["shape"] = [int(n) for n in random.choice([0, 1, 5, 2**31, 2**62], 3)]
    elif choice == 2:
        header[name]["shape"] = header[name]["shape"][::-1]
    elif choice == 3:
        header[name]["data_offsets"] = [0, int(random.choice([0, 2**40, 2**63]))]
    elif choice == 4:
        header[f"{name}x"] = header.pop(name)
    else:
        del header[name]
    _write_arrays(folder, header, data)
    return f"{name} {choice}"


def _other_arrays(folder: Path, random: np.random.Generator) -> str:
    """Sound files with arrays of other shapes and types, or of wild numbers."""
    from safetensors.numpy import load, save

    try:
        arrays = load((folder / ARRAYS).read_bytes())
    except Exception as error:
        raise ValueError("an earlier change has been there") from error
    name = str(random.choice(sorted(arrays)))
    leaf = arrays[name]
    choices: list[Callable[[], np.ndarray]] = [
        lambda: leaf[1:], lambda: leaf[..., 1:], lambda: leaf[None], lambda: leaf.reshape(-1),
        lambda: leaf.astype(np.float64), lambda: leaf.astype(np.int64), lambda: leaf[:0],
        lambda: np.ones((), np.float32), lambda: np.full_like(leaf, np.nan),
        lambda: np.full_like(leaf, np.inf), lambda: np.full_like(leaf, 3e38),
        lambda: leaf * np.float32(1e30), lambda: _one_of(leaf, np.nan, random),
        lambda: _one_of(leaf, -3e38, random), lambda: np.zeros_like(leaf),
    ]  # fmt: skip
    choice = int(random.integers(len(choices)))
    with np.errstate(all="ignore"):
        arrays[name] = np.ascontiguousarray(choices[choice]())
    (folder / ARRAYS).write_bytes(save(arrays))
    sign(folder)
    return f"{name} {choice}"


def _one_of(leaf: np.ndarray, value: float, random: np.random.Generator) -> np.ndarray:
    leaf = leaf.copy()
    leaf.reshape(-1)[random.integers(max(1, leaf.size))] = np.array(value).astype(leaf.dtype)
    return leaf


def _json_value(folder: Path, random: np.random.Generator) -> str:
    """Another value anywhere in the JSON, the entry gone, or one too many."""
    rest = _rest(folder)
    if not _holders(rest):
        return "nothing"
    how = _change_entry(rest, random)
    (folder / JSON).write_text(json.dumps(rest))
    return how


def _change_entry(rest: object, random: np.random.Generator) -> str:
    holders = _holders(rest)
    holder = holders[random.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[random.integers(len(keys))]
    choice = random.random()
    if choice < 0.7:
        holder[key] = _VALUES[random.integers(len(_VALUES))]
    elif choice < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder["more"] = holder[key]
    else:
        holder.append(holder[key])
    return f"{key} {choice:.2f}"


def _json_text(folder: Path, random: np.random.Generator) -> str:
    """A number of the JSON that is none, or too deep to be read."""
    text = (folder / JSON).read_bytes().decode(errors="replace")
    parts = text.split(", " if random.random() < 0.5 else ": ")
    at = int(random.integers(len(parts)))
    new = _NUMBERS[random.integers(len(_NUMBERS))]
    (folder / JSON).write_text(": ".join([*parts[:at], new, *parts[at + 1 :]]))
    return f"{new[:9]} at {at}"


def _number_in_place(folder: Path, random: np.random.Generator) -> str:
    """A value of the JSON that is no number, and the rest as it was."""
    rest = _rest(folder)
    holders = _holders(rest)
    if not holders:
        return "nothing"
    holder = holders[random.integers(len(holders))]
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = keys[random.integers(len(keys))]
    holder[key] = "@here@"
    new = _NUMBERS[random.integers(len(_NUMBERS))]
    (folder / JSON).write_text(json.dumps(rest).replace('"@here@"', new))
    return f"{new[:9]} at {key}"


def _consistently(folder: Path, random: np.random.Generator) -> str:
    """Several settings that belong together, as someone would who knows the format."""
    rest = _rest(folder)
    if not isinstance(rest, dict) or not isinstance(rest.get("config"), dict):
        return "nothing"
    choice = int(random.integers(5))
    config = rest["config"]
    if choice == 0:
        config |= {"validation": int(random.choice([2**20, 10**12]))}
    elif choice == 1:
        config |= {"horizon": 10**9, "validation": 2 * 10**9, "lookback": 10**9}
    elif choice == 2:
        config |= {"hidden": 10**9, "layers": 10**9}
    elif choice == 3:
        config["transform"] = str(random.choice(["difference", "auto", "last_value"]))
        rest["transform"] = {"name": config["transform"]}
    else:
        rest |= {"schema": 2, "encoding": {"weights": "int8", "pruned": 0.5, "scores": "float16"}}
    (folder / JSON).write_text(json.dumps(rest))
    return str(choice)


def _in_steps(folder: Path, random: np.random.Generator) -> str:
    """A model of series that count in whole numbers."""
    rest = _rest(folder)
    if not isinstance(rest, dict) or not isinstance(rest.get("ids"), list):
        return "nothing"
    rest["frequency"] = {"alias": "step", "step": 1, "nyse": False}
    rest["fitted_until"] = [int(random.choice([0, -(2**63), 2**62]))] * len(rest["ids"])
    (folder / JSON).write_text(json.dumps(rest))
    return "whole numbers"


def _cut(folder: Path, random: np.random.Generator) -> str:
    path = folder / (JSON if random.random() < 0.5 else ARRAYS)
    raw = path.read_bytes()
    path.write_bytes(raw[: random.integers(len(raw))])
    sign(folder)
    return path.name


def _gone(folder: Path, random: np.random.Generator) -> str:
    path = folder / (JSON if random.random() < 0.5 else ARRAYS)
    path.write_bytes(b"")
    if random.random() < 0.5:
        path.unlink()
        path.mkdir()
        (path / "file").write_text("")
        return f"{path.name} a folder"
    return f"{path.name} empty"


_CHANGES = [
    _any_bytes, _any_bytes, _header_bytes, _header_bytes, _header_fields, _header_fields,
    _other_arrays, _other_arrays, _other_arrays, _json_value, _json_value, _json_value, _json_value,
    _json_text, _number_in_place, _consistently, _in_steps, _cut, _gone,
]  # fmt: skip


def _rest(folder: Path) -> Any:
    try:
        return json.loads((folder / JSON).read_bytes())
    except (ValueError, RecursionError, OSError):
        return {}


def _holders(tree: Any) -> list[Any]:
    """All objects and lists of a tree that are not empty."""
    if not isinstance(tree, dict | list) or not tree:
        return []
    below = tree.values() if isinstance(tree, dict) else tree
    return [tree, *(holder for part in below for holder in _holders(part))]


def _arrays(folder: Path) -> tuple[dict[str, Any], bytes]:
    raw = (folder / ARRAYS).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def _write_arrays(folder: Path, header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    (folder / ARRAYS).write_bytes(struct.pack("<Q", len(text)) + text + data)
    sign(folder)


def sign(folder: Path) -> None:
    """Write the hash that the arrays have now."""
    rest = _rest(folder)
    if isinstance(rest, dict) and (folder / JSON).is_file() and rest:
        rest["arrays_sha256"] = hashlib.sha256((folder / ARRAYS).read_bytes()).hexdigest()
        (folder / JSON).write_text(json.dumps(rest))
