"""The settings of a fit: one frozen value, checked when it is made."""

import dataclasses
import math
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from forecaster.errors import UsageError, check_type, listed, wrong_argument
from forecaster.series import CLASSICAL, LONGEST_SEASON, MOST_SEASONS


class NetworkKind(NamedTuple):
    """What is known of a kind of network outside its own file.

    - ``module``: its class in :mod:`forecaster.forecasting.flax_networks`; empty for LSTM and GRU
    - ``gates``: how many the cell of these has
    - ``sees_whole_window``: whether it takes only windows of ``lookback`` steps, not shorter ones
    """

    module: str = ""
    gates: int = 0
    sees_whole_window: bool = False


NETWORKS = {
    "lstm": NetworkKind(gates=4),
    "gru": NetworkKind(gates=3),
    "transformer": NetworkKind("Transformer"),
    "mlp": NetworkKind("MLP", sees_whole_window=True),
}
MODELS = ("auto", *NETWORKS, *CLASSICAL)
TRANSFORMS = ("auto", "log_return", "combined", "difference", "last_value")
ENCODINGS = ("none", "float16", "int8", "pruned-50", "pruned-80", "int8-pruned-50", "small")
_CHOICES = {
    "model": MODELS,
    "training": ("auto", "sequence", "windowed"),
    "transform": TRANSFORMS,
    "start": ("pooled", "independent"),
    "precision": ("float32", "bfloat16"),
    "encoding": ENCODINGS,
}

# The lowest and the highest number. Beyond the highest a fit asks for more memory than any machine
# has, or runs for years.
_ANY = 1, 2**31 - 1
_COUNTS = {
    "hidden": (1, 10_000), "layers": (1, 100), "horizon": (1, 10_000), "members": (1, 1_000),
    "season": (1, LONGEST_SEASON), "validation": _ANY, "epochs": _ANY, "patience": _ANY,
    "batch_size": _ANY, "data_parallel": _ANY,
    "lookback": (1, math.inf),  # a longer one is cut to the histories
    "burn_in": (0, math.inf),
}  # fmt: skip
_POSITIVE = 1e-12, sys.float_info.max, "a positive number"
_NUMBERS = {
    "learning_rate": _POSITIVE, "clip": _POSITIVE,
    "weight_decay": (0.0, *_POSITIVE[1:]), "shrinkage": (0.0, *_POSITIVE[1:]),
    "premium": (-0.5, 1.0, "a share of -0.5 to 1, such as 0.05 for 5 % a year, or 'none'"),
}  # fmt: skip
_OPTIONAL = ("validation", "season", "market", "premium", "epochs", "patience")
_MOST_BYTES = 1 << 20  # of a file of settings

Stage: TypeAlias = Literal["independent", "pooled", "from pooled"]
_LIMITS: dict[Stage, tuple[int, int]] = {  # default number of epochs, and patience
    "independent": (100, 15),
    # An epoch goes through all series once; a patience of 500 steps was worse on stocks.
    "pooled": (100, 5),
    # With 20 and 5 the CRPS of stocks is the same, and fits take longer.
    "from pooled": (6, 2),
}
# Factor on the learning rate in training that starts from the pooled networks.
_FINE_TUNING = 1 / 3


def checked_config(config: "Config | None") -> "Config":
    """Return the settings, by default ``Config()``. Raises UsageError for anything else."""
    expected = "a forecaster.Config, which forecaster.Config(**settings) makes of a dictionary"
    check_type("config", config, Config | None, expected)
    return Config() if config is None else config


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a fit.

    Counts of steps are in rows of a series: sessions for daily prices.

    - ``model``: ``auto``, a network or a classical model. ``auto`` is an LSTM for each series;
      series other than prices get one only if enough of them are long, otherwise the combination of
      ``transform`` alone. A network is trained for every series that is long enough: ``lstm``,
      ``gru`` or ``transformer`` go through a window step by step; ``mlp`` sees it as a whole. A
      classical model, ``ets``, ``theta`` or ``ces``, has no network. A network of your own is
      passed to :func:`forecaster.fit`; ``model`` is then its import path, ``package.module:Class``
    - ``hidden``: number of units in a layer; few, since a series has only a few thousand rows
    - ``layers``: number of layers in the network
    - ``horizon``: number of steps ahead, each forecast directly; by default a week of sessions
    - ``lookback``: number of latest rows that a forecast is made from; by default a quarter of
      sessions
    - ``burn_in``: number of first steps of a window that only warm up the state and predict
      nothing; by default a third of the lookback, at most 20
    - ``validation``: number of latest rows that are held back to stop early, choose weights and
      calibrate bands; by default a quarter of a series' rows, at most 252, a year of sessions
    - ``training``: ``sequence``: every step of a window after ``burn_in`` predicts; ``windowed``:
      only the last step does; ``auto``: ``sequence`` if the model supports it, since it takes fewer
      windows
    - ``transform``: how a series is presented to its networks: ``log_return``, ``difference``,
      or ``combined``, as errors of a combination of simple forecasts;
      ``auto`` takes log returns for prices and the combination for everything else. With
      ``last_value`` there are no networks: a series is expected to stay where it is, and its bands
      show how far it may move; ``auto`` takes it for prices if no series has enough rows for
      networks
    - ``season``: number of steps in a season, or several such numbers; by default from the
      frequency, or, if times are whole numbers, from the series itself
    - ``market``: a series, or several, such as an index of stocks and one of volatility, which all
      networks, and the common model of volatility, see beside their own series; for prices only;
      None: each network sees only its own series
    - ``premium``: the growth of a price's mean in a year, as a share; its median grows by half the
      variance less. It replaces the drift that networks learned from the past; see
      :func:`forecaster.forecasting.premium_of`. With 0 prices stay where they are in the mean;
      with None, or ``"none"``, the learned drift stays. It does not apply to series other than
      dated prices, nor to transforms other than log returns
    - ``common_volatility``: whether bands also follow a model of volatility that all series share,
      which sees the state of the market in a sample of 50 of them, and in ``market``. For prices
      of at least ten series, or of fewer beside a market, the longest of 504 rows or more, and
      networks whose ``start`` is pooled
    - ``start``: initial weights of a series' networks: ``pooled``, the weights of a network trained
      briefly on all series; ``independent``, random weights, so that series do not influence each
      other
    - ``members``: number of networks per series; their distributions are averaged
    - ``shrinkage``: strength of the weight decay towards the pooled network
    - ``epochs``: maximum number of passes over the training rows; by default 100, and 6 for
      networks that start from the pooled one
    - ``patience``: number of epochs without a better validation loss after which training stops; by
      default 5, 2 for networks that start from the pooled one, and 15 for independent ones
    - ``batch_size``: number of windows per gradient step
    - ``learning_rate``: the learning rate of AdamW; networks that start from the pooled network use
      a third of it
    - ``weight_decay``: the weight decay of AdamW towards zero, for networks without ``shrinkage``
    - ``clip``: maximum norm of a gradient; larger gradients are scaled down to it
    - ``precision``: the precision of the matrix products of LSTM and GRU: ``float32``, or
      ``bfloat16``, which is faster on processors with matrix units (AMX) and on AMD's with AVX-512
      BF16; other processors compute it in float32. Sums, states and activations are always float32
    - ``encoding``: how the weights are written when the model is saved: ``none``, in full;
      ``float16``, in half precision; ``int8``, as bytes; ``pruned-50``, ``pruned-80``, without the
      smallest 50 or 80 % of each matrix; ``int8-pruned-50``, both; ``small``, as bytes, with the
      errors that calibrate bands in half precision. A smaller file does not forecast faster
    - ``data_parallel``: number of devices that share each batch of the pooled network; the result
      is that of one device, except for rounding. Worthwhile on several GPUs with several hundred
      units

    Raises UsageError when a setting is out of its range.
    """

    model: str = "auto"
    hidden: int = 16
    layers: int = 1
    horizon: int = 5
    lookback: int = 60
    # None until __post_init__ sets it, since the default depends on lookback.
    burn_in: int = None  # pyright: ignore[reportAssignmentType]
    validation: int | None = None
    training: str = "auto"
    transform: str = "auto"
    season: int | tuple[int, ...] | None = None
    market: str | tuple[str, ...] | None = None
    premium: float | None = 0.05
    common_volatility: bool = True
    start: str = "pooled"
    members: int = 1
    shrinkage: float = 3.0
    epochs: int | None = None
    patience: int | None = None
    batch_size: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    clip: float = 1.0
    precision: str = "float32"
    encoding: str = "none"
    data_parallel: int = 1

    def __post_init__(self) -> None:
        if cast(int | None, self.burn_in) is None and isinstance(cast(object, self.lookback), int):
            object.__setattr__(self, "burn_in", max(0, min(20, self.lookback // 3)))
        for field in dataclasses.fields(self):
            value = _checked(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        self._check_together()

    def _check_together(self) -> None:
        if self.training_mode == "sequence" and self.burn_in >= self.lookback:
            raise wrong_argument("burn_in", self.burn_in, f"less than lookback, {self.lookback}")
        if self.validation is not None and self.validation < self.horizon + 9:
            least = f"at least horizon + 9 = {self.horizon + 9}"
            expected = f"{least}, so that each band has 10 errors to be calibrated on"
            raise wrong_argument("validation", self.validation, expected)
        if not self.is_own and self.sees_whole_window and self.training == "sequence":
            raise UsageError(
                f"model {self.model} sees a window as a whole and cannot be trained with "
                "'sequence'; use --training windowed, or --model lstm, gru or transformer"
            )
        if self.is_classical and self.transform not in ("auto", "combined"):
            raise UsageError(
                f"transform {self.transform} is what networks see of a series, and the model "
                f"{self.model} has none. Leave out transform, or model"
            )
        if self.is_classical and self.market is not None:
            raise UsageError(
                f"market {listed(self.indices)}: the model {self.model} sees nothing but its own "
                "series. Leave out market, or model"
            )
        if self.is_classical:  # only this transform computes what they and their bands need
            object.__setattr__(self, "transform", "combined")
        if self.market is not None and self.transform not in ("auto", "log_return"):
            raise UsageError(
                f"transform {self.transform} cannot use a market; only log_return, for prices, "
                "can. Leave out market, or transform"
            )
        if self.data_parallel > 1 and self.start != "pooled":
            raise UsageError(
                f"data_parallel: expected 1 with start {self.start}, whose small networks already "
                f"train side by side on all devices; got {self.data_parallel}. Leave it out, or "
                "use start = 'pooled'"
            )
        if self.precision == "bfloat16" and (self.is_own or not NETWORKS[self.network].gates):
            own = "; in a network of your own use swarm.LSTM(..., precision=)"
            expected = f"float32 with the model {self.model}{own if self.is_own else ''}"
            raise wrong_argument("precision", self.precision, expected)

    @property
    def indices(self) -> tuple[str, ...]:
        """The names in ``market``; empty without one."""
        return (self.market,) if isinstance(self.market, str) else self.market or ()

    @property
    def is_classical(self) -> bool:
        """Whether ``model`` is a classical one, without networks."""
        return self.model in CLASSICAL

    @property
    def network(self) -> str:
        """The kind of network; an LSTM for ``auto``, and for classical models, which train none."""
        return "lstm" if self.model == "auto" or self.is_classical else self.model

    @property
    def is_own(self) -> bool:
        """Whether the network is a user's own; ``model`` is then its import path."""
        return isinstance(cast(object, self.model), str) and ":" in self.model

    @property
    def sees_whole_window(self) -> bool:
        """Whether the network takes only windows of ``lookback`` steps, not shorter ones."""
        return self.is_own or NETWORKS[self.network].sees_whole_window

    @property
    def training_mode(self) -> Literal["sequence", "windowed"]:
        """``training`` with ``auto`` resolved."""
        if self.training == "auto":
            return "windowed" if self.sees_whole_window else "sequence"
        return cast(Literal["sequence", "windowed"], self.training)

    def limits(self, stage: Stage) -> tuple[int, int]:
        """Return the maximum number of epochs of a stage of training, and its patience in epochs.

        ``stage``: ``pooled``: the network of all series; ``from pooled``: each series' networks
        that start from the pooled one, or train on with new rows; ``independent``: networks that
        start from random weights.
        """
        epochs, patience = _LIMITS[stage]
        return self.epochs or epochs, self.patience or patience

    def hyperparams(self, stage: Stage) -> dict[str, float]:
        """Return a stage's arguments of :func:`forecaster.swarm.adamw`, see :meth:`limits`."""
        rate, decay = self.learning_rate, self.weight_decay
        if stage == "from pooled":
            rate, decay = rate * _FINE_TUNING, self.shrinkage
        return {"learning_rate": rate, "weight_decay": decay, "clip": self.clip}

    @property
    def shortest_validation(self) -> int:
        """The minimum number of rows to hold back; each band then has 10 errors."""
        return self.horizon + 9 if self.validation is None else self.validation

    @property
    def longest_validation(self) -> int:
        """The maximum number of rows to hold back of a series."""
        return max(252, self.horizon + 9) if self.validation is None else self.validation

    @property
    def rows_to_forecast(self) -> int:
        """The minimum number of rows that a series needs to be forecast."""
        return self.lookback if self.validation is not None else min(self.lookback, 20)

    @property
    def rows_to_fit(self) -> int:
        """The minimum number of rows that a series needs to be fitted."""
        if self.validation is not None:
            return self.lookback + self.horizon + self.validation
        return 2 * self.horizon + self.shortest_validation + 10

    @property
    def why_rows(self) -> str:
        """The sum that gives :attr:`rows_to_fit`, in words."""
        if self.validation is not None:
            return (
                f"lookback {self.lookback} + horizon {self.horizon} + validation {self.validation}"
            )
        return f"2 x horizon {self.horizon} + validation {self.shortest_validation} + 10"

    @property
    def column(self) -> str:
        """The model's name in forecast frames: ``LSTM``, or the class of a user's own network."""
        if self.is_own:
            return re.split("[:.]", self.model)[-1]
        return (self.model if self.is_classical else self.network).upper()

    @staticmethod
    def from_dict(settings: Mapping[str, Any], where: str = "configuration") -> "Config":
        """Make a Config from names and values, such as those of a TOML file.

        ``where``: the origin of the settings, for error messages. Raises UsageError for an unknown
        name and for a value out of its range.
        """
        known = [field.name for field in dataclasses.fields(Config)]
        for name in settings:
            if name not in known:
                raise UsageError(f"{where}: no setting {name!r}; there are: {', '.join(known)}")
        return Config(**settings)


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings from a TOML file, a flat table. Raises UsageError if it cannot be read."""
    if path.exists() and not path.is_file():  # reading others may never end
        raise UsageError(f"{path}: cannot be read: not a plain file")
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{size:,} bytes; expected {_MOST_BYTES:,} at most")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    # Raised by TOML, by UTF-8, for a number with thousands of digits, or for deep nesting.
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as TOML: {error}") from error


def _checked(name: str, value: Any) -> Any:
    """Return a setting in its own type; TOML and JSON give lists for tuples, and 1 for 1.0.

    Raises UsageError for a value out of its range.
    """
    text = isinstance(value, str)
    if name in _CHOICES:
        if not (text and (value in _CHOICES[name] or (name == "model" and ":" in value))):
            raise wrong_argument(name, value, f"one of {', '.join(_CHOICES[name])}")
    elif name in _OPTIONAL and (value is None or (text and value == "none" and name == "premium")):
        return None
    elif name == "market":  # one name, or several in the order given
        names = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(each, str) and each for each in names):
            raise wrong_argument(name, value, "the name of a series, such as SPY, or several")
        if len(set(names)) < len(names):
            raise wrong_argument(name, value, "different names")
        return names[0] if len(names) == 1 else names or None
    elif name == "season" and isinstance(value, list | tuple):
        if not 0 < len(value) <= MOST_SEASONS:
            expected = f"1 to {MOST_SEASONS} numbers of steps; leave it out for the default"
            raise wrong_argument(name, value, expected)
        return tuple(sorted(_checked(name, steps) for steps in cast(Sequence[Any], value)))
    elif name == "common_volatility":
        if not isinstance(value, bool):
            raise wrong_argument(name, value, "true or false")
    elif name in _COUNTS:
        lowest, most = _COUNTS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= most:
            upper = "or more" if most == math.inf else f"to {most:,}"
            raise wrong_argument(name, value, f"a whole number of {lowest} {upper}")
    else:
        lowest, most, expected = _NUMBERS[name]
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not (real and lowest <= value <= most):
            raise wrong_argument(name, value, expected)
        return float(value)
    return value
