"""An evaluation from end to end: forecasts, scores and tests of all series, in a folder."""

import dataclasses
import json
import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster import atomic, metrics, significance
from forecaster.baselines import Runner
from forecaster.config import Config
from forecaster.errors import DataError, UsageError
from forecaster.evaluation import evaluate, horizon_of, models_of, quantile_columns
from forecaster.panel import Panel, show_time
from forecaster.rolling import Rolling, write_frames

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""Bands whose bounds and median are the 19 quantiles from 5 to 95 %, and a wider one."""
VALUE_AT_RISK = (0.05, 0.025)
FORECASTS, SCORES, TESTS, SUMMARY = (
    "forecasts.parquet",
    "scores.parquet",
    "tests.parquet",
    "summary.json",
)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. ``scores``: a row per series, model and horizon; ``tests``: a row
    per series, horizon and test; ``summary``: provenance, times, what was left out."""

    folder: Path
    scores: pd.DataFrame
    tests: pd.DataFrame
    summary: dict[str, Any]

    @staticmethod
    def read(folder: Path) -> "Evaluation":
        """The evaluation in a folder. Raises UsageError when there is none."""
        try:
            summary = json.loads((folder / SUMMARY).read_text())
            scores, tests = (pd.read_parquet(folder / name) for name in (SCORES, TESTS))
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} holds no evaluation: {Path(error.filename or SUMMARY).name} is missing; "
                f"make one with `forecaster evaluate --output {folder}`"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: the evaluation cannot be read: {error}") from error
        return Evaluation(folder, scores, tests, summary)

    @property
    def model(self) -> str:
        """The column of our own model."""
        return self.summary["model"]

    def forecasts(self, columns: Sequence[str]) -> pd.DataFrame:
        """Columns of the forecasts, with ``unique_id, ds, cutoff, y``."""
        keys = ["unique_id", "ds", "cutoff", "y"]
        return pd.read_parquet(self.folder / FORECASTS, columns=[*keys, *columns])


def evaluate_to_folder(
    folder: Path,
    panel: Panel,
    config: Config | None = None,
    n_windows: int = 250,
    step_size: int = 1,
    baselines: Sequence[str] = ("naive", "ewma"),
    *,
    refit: bool | int = False,
    seed: int = 0,
    cache: Path | None = None,
    provenance: dict[str, Any] | None = None,
    on_training: Callable[[Any], None] | None = None,
    on_forecast: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Forecast from a rolling origin by our model and baselines, score and test, and write it all.

    ``baselines``: names of :data:`forecaster.baselines.BASELINES`; ``naive`` is always among them.
    ``cache``: a folder where slow baselines keep what they made. The folder must not exist; it
    appears whole or not at all.

    Raises UsageError for an unknown baseline or one whose library is not installed, DataError when
    the panel is too short.
    """
    began = time.perf_counter()
    config = config or Config()
    names = list(dict.fromkeys(["naive", *baselines]))
    if folder.exists():
        raise UsageError(f"{folder} exists; choose another folder, or --overwrite it")
    with Runner(names, config.horizon, LEVELS, panel, cache=cache) as runner:
        rolling = Rolling.fit(
            panel, config, n_windows, step_size,
            refit=refit, level=LEVELS, seed=seed, on_progress=on_training,
        )  # fmt: skip
        trained = time.perf_counter() - began
        scores, tests = [], []

        def frames() -> Iterator[pd.DataFrame]:
            done = 0
            for origins, forecasts in rolling.batches():
                made = [origins.keys, forecasts, runner.run(origins)]
                frame = pd.concat(made, axis=1)
                done += len(origins.panel.ids)
                scores.append(evaluate(frame, by_horizon=True, panel=origins.panel))
                tests.append(_tests(frame, rolling.config.column, origins.latest, step_size))
                if on_forecast:
                    on_forecast(done, len(rolling.panel.ids))
                yield _single_precision(frame)

        with atomic.write_folder(folder) as temporary:
            write_frames(temporary / FORECASTS, frames())
            table, tested = pd.concat(scores, ignore_index=True), _adjusted(pd.concat(tests))
            table.to_parquet(temporary / SCORES, index=False)
            tested.to_parquet(temporary / TESTS, index=False)
            cutoffs = rolling.panel.times[rolling.cutoffs]
            summary = {
                "model": rolling.config.column,
                "models": models_of_scores(table),
                "series": int(table["unique_id"].nunique()),
                "cutoffs": len(cutoffs),
                "step_size": step_size,
                "horizon": config.horizon,
                "first_cutoff": show_time(cutoffs[0]),
                "last_cutoff": show_time(cutoffs[-1]),
                "first": show_time(rolling.panel.times[0]),
                "last": show_time(rolling.panel.times[-1]),
                "refit": refit,
                "seed": seed,
                "config": dataclasses.asdict(config),
                "skipped": dict(rolling.panel.skipped),
                "failed": {name: failed for name, failed in runner.failed.items() if failed},
                "seconds": {
                    "training": sum(m.provenance["training_seconds"] for m, _ in rolling.parts),
                    "fitting": round(trained, 2),
                    "baselines": {name: round(s, 2) for name, s in runner.seconds.items()},
                    "all": round(time.perf_counter() - began, 2),
                },
                "peak_memory_gb": _peak_gb(),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "python": platform.python_version(),
                "versions": {name: version(name) for name in ("forecaster", "jax", "flax")},
                **(provenance or {}),
            }
            (temporary / SUMMARY).write_text(json.dumps(summary, indent=1, default=str))
    return Evaluation(folder, table, tested, summary)


def models_of_scores(scores: pd.DataFrame) -> list[str]:
    """The models in a table of scores."""
    return list(dict.fromkeys(scores["model"]))


def _single_precision(frame: pd.DataFrame) -> pd.DataFrame:
    """Forecasts as float32, half the room; actual values stay as they are."""
    return frame.astype(dict.fromkeys(frame.columns[4:], np.float32))


def _tests(frame: pd.DataFrame, model: str, latest: np.ndarray, step: int) -> pd.DataFrame:
    """Tests of every series: of our model against the others at each horizon, by absolute error and
    CRPS; of every model's value at risk and direction, one step ahead."""
    frame = frame.assign(horizon=horizon_of(frame), latest=latest)
    columns = [str(name) for name in frame]
    others = [name for name in models_of(frame) if name not in (model, "latest")]
    quantiles = {name: quantile_columns(columns, name) for name in (model, *others)}
    losses: dict[tuple[str, str], np.ndarray] = {}
    for name in (model, *others):
        losses["mae", name] = metrics.absolute_error(frame["y"], frame[name])
        if places := quantiles[name]:
            values = frame[list(places.values())].to_numpy()
            losses["crps", name] = metrics.crps(frame["y"], values, list(places))
    rows = []
    groups = frame.groupby(["unique_id", "horizon"], sort=False).indices
    for (name, horizon), index in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        lags = -(-int(horizon) // step) - 1
        for score, other in [key for key in losses if key[1] != model]:
            ours, theirs = losses[score, model][index], losses[score, other][index]
            tested = significance.diebold_mariano(ours, theirs, lags)
            better = float(np.mean(ours) < np.mean(theirs)) if np.isfinite(theirs).all() else np.nan
            rows.append((name, horizon, f"{score}_against", other, better, *tested))
        if horizon == 1:
            rows += _of_one_step(name, frame.iloc[index], quantiles)
    header = ["unique_id", "horizon", "test", "model", "value", "statistic", "p_value"]
    return pd.DataFrame(rows, columns=header)


def _of_one_step(series: str, frame: pd.DataFrame, quantiles) -> list[tuple]:
    rows = []
    y, latest = frame["y"].to_numpy(), frame["latest"].to_numpy()
    for name, places in quantiles.items():
        for probability in VALUE_AT_RISK:
            if probability not in places or not np.isfinite(frame[places[probability]]).all():
                continue
            exceeded = y < frame[places[probability]].to_numpy()
            share, label = float(exceeded.mean()), f"{probability:g}"
            kupiec = significance.kupiec(exceeded, probability)
            rows.append((series, 1, f"kupiec-{label}", name, share, *kupiec))
            clusters = significance.christoffersen(exceeded)
            rows.append((series, 1, f"christoffersen-{label}", name, share, *clusters))
        forecast = frame[name].to_numpy(float)
        direction = significance.pesaran_timmermann(y - latest, forecast - latest)
        hits = float(((y > latest) == (forecast > latest)).mean())
        rows.append((series, 1, "direction", name, hits, *direction))
        actual, previous = significance.echo(y, forecast, latest)
        rows.append((series, 1, "echo", name, previous - actual, np.nan, np.nan))
    return rows


def _adjusted(tests: pd.DataFrame) -> pd.DataFrame:
    """With p-values adjusted over the series, for each horizon, test and model apart."""
    groups = tests.groupby(["horizon", "test", "model"])["p_value"]
    adjusted = groups.transform(lambda column: significance.false_discovery(column.to_numpy()))
    return tests.assign(p_adjusted=adjusted).reset_index(drop=True)


def _peak_gb() -> float:
    """The largest memory of this process and of the largest that it started, GB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return round(sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1e6, 2)
