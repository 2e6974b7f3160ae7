"""What to train and how: one frozen value, checked when it is made."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from forecaster.errors import UsageError

_CHOICES = {
    "model": ("lstm", "gru", "mlp"),
    "head": ("student_t", "point"),
    "training": ("auto", "sequence", "windowed"),
    "transform": ("auto", "log_return", "difference", "seasonal", "identity"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a fit.

    Counts of steps (``horizon, lookback, burn_in, validation``) are in rows of a series: sessions
    for daily prices.

    - ``horizon``: how far ahead; every step up to it is forecast directly
    - ``lookback``: how many of the latest rows a forecast is made from
    - ``validation``: the latest rows, held back to stop early, choose weights and calibrate bands
    - ``training``: ``sequence``, every step of a window after ``burn_in`` predicts; ``windowed``,
      only the last; ``auto``, sequence where the model can
    - ``transform``: ``auto`` takes log returns for prices, otherwise goes by the frequency
    - ``burn_in``: steps of a window that only warm it up; by default a third of the lookback, 20 at
      most
    - ``season``: steps in a season, for the seasonal transform; by default from the frequency
    - ``clip``: largest gradient norm; ``patience``: epochs without improvement until a stop

    Raises UsageError when a setting is out of its range.
    """

    model: str = "lstm"
    head: str = "student_t"
    hidden: int = 8
    layers: int = 1
    horizon: int = 5
    lookback: int = 60
    burn_in: int | None = None
    validation: int = 252
    training: str = "auto"
    transform: str = "auto"
    season: int | None = None
    epochs: int = 100
    patience: int = 15
    batch_size: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    clip: float = 1.0

    def __post_init__(self):
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _wrong(name, f"one of {', '.join(choices)}", getattr(self, name))
        if self.burn_in is None and isinstance(self.lookback, int):
            object.__setattr__(self, "burn_in", max(0, min(20, self.lookback // 3)))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            optional = field.name in ("season", "burn_in") and value is not None
            if field.type is int or optional:
                lowest = 0 if field.name == "burn_in" else 1
                if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                    raise _wrong(field.name, f"a whole number of {lowest} or more", value)
            elif field.type is float:
                lowest = 0.0 if field.name == "weight_decay" else 1e-12
                if not isinstance(value, int | float) or not lowest <= value < float("inf"):
                    raise _wrong(field.name, "a positive number", value)
                object.__setattr__(self, field.name, float(value))  # TOML writes 1 for 1.0
        if self.way == "sequence" and self.warm_up >= self.lookback:
            raise _wrong("burn_in", f"less than lookback, {self.lookback}", self.burn_in)
        if self.validation < self.horizon + 9:
            raise _wrong(
                "validation",
                f"at least horizon + 9 = {self.horizon + 9}, so that 10 errors calibrate each band",
                self.validation,
            )
        if self.model == "mlp" and self.training == "sequence":
            raise UsageError(
                "model mlp sees a window as a whole and cannot be trained with 'sequence'; "
                "use --training windowed, or --model lstm or gru"
            )

    @property
    def way(self) -> str:
        """How to train, ``auto`` resolved."""
        if self.training != "auto":
            return self.training
        return "windowed" if self.model == "mlp" else "sequence"

    @property
    def warm_up(self) -> int:
        """``burn_in``, its default resolved."""
        return self.burn_in or 0

    @property
    def column(self) -> str:
        """The model's name in forecast frames."""
        return self.model.upper()

    @staticmethod
    def from_dict(settings: dict[str, Any], where: str = "configuration") -> "Config":
        """A Config from names and values, e.g. a TOML file's; an unknown name is an error."""
        known = [field.name for field in dataclasses.fields(Config)]
        for name in settings:
            if name not in known:
                raise UsageError(f"{where}: no setting {name!r}; there are: {', '.join(known)}")
        return Config(**settings)


def read_settings(path: Path) -> dict[str, Any]:
    """Settings of a TOML file, a flat table. Raises UsageError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from error


def _wrong(name: str, expected: str, got: Any) -> UsageError:
    return UsageError(f"{name}: expected {expected}; got {got!r}")
