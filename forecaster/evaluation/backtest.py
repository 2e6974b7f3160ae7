"""An evaluation from end to end: forecasts, scores and tests of all series, in a folder."""

import dataclasses
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.config import Config
from forecaster.errors import DataError, UsageError
from forecaster.evaluation import metrics, significance
from forecaster.evaluation.baselines import Runner, check_torch, memory_used
from forecaster.evaluation.cross_validation import Rolling, write_frames
from forecaster.evaluation.scores import evaluate, horizon_of
from forecaster.forecasting import models_of, quantile_columns, renamed_columns
from forecaster.ingest import Membership
from forecaster.series import Panel, show_time

LEVELS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
"""Bands whose bounds and median are the 19 quantiles from 5 to 95 %, and a wider one."""
VALUE_AT_RISK = (0.05, 0.025)
FORECASTS, SCORES, TESTS = "forecasts.parquet", "scores.parquet", "tests.parquet"
DAILY, SUMMARY = "daily.parquet", "summary.json"
_OURS = {FORECASTS, SCORES, TESTS, DAILY, SUMMARY, "figures", "report.html", "comparison.csv"} | {
    "coverage.csv"
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. ``scores``: a row per series, model and horizon; ``tests``: a row
    per series, horizon and test; ``daily``: a row per cutoff and model, scaled errors one step
    ahead, means over series; ``summary``: provenance, times, what was left out."""

    folder: Path
    scores: pd.DataFrame
    tests: pd.DataFrame
    daily: pd.DataFrame
    summary: dict[str, Any]

    @staticmethod
    def read(folder: Path) -> "Evaluation":
        """The evaluation in a folder. Raises UsageError when there is none."""
        try:
            summary = json.loads((folder / SUMMARY).read_text())
            tables = [pd.read_parquet(folder / name) for name in (SCORES, TESTS, DAILY)]
        except FileNotFoundError as error:
            raise UsageError(
                f"{folder} holds no evaluation: {Path(error.filename or SUMMARY).name} is missing; "
                f"make one with `forecaster evaluate --output {folder}`"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: the evaluation cannot be read: {error}") from error
        scores, tests, daily = tables
        return Evaluation(folder, scores, tests, daily, summary)

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
    torch_sample: int = 50,
    overwrite: bool = False,
    cache: Path | None = None,
    membership: Membership | None = None,
    provenance: dict[str, Any] | None = None,
    finish: Callable[[Evaluation], None] | None = None,
    on_training: Callable[[Any], None] | None = None,
    on_torch: Callable[[int, int], None] | None = None,
    on_forecast: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Forecast from a rolling origin by our model and baselines, score and test, and write it all.

    ``baselines``: names of :data:`forecaster.evaluation.baselines.BASELINES`, and ``torch``, the same networks
    trained by PyTorch for ``torch_sample`` of the series; ``naive`` is always among them.
    ``cache``: a folder where slow baselines keep what they made. ``membership``: count forecasts
    only from cutoffs at which the series belonged to the universe. The folder must not exist, or be
    an evaluation to ``overwrite``; it appears whole or not at all, with what ``finish`` adds to it.

    Raises UsageError for an unknown baseline or one whose library is not installed, DataError when
    the panel is too short.
    """
    began = time.perf_counter()
    config = config or Config()
    names = list(dict.fromkeys(["naive", *(name for name in baselines if name != "torch")]))
    folder = folder.resolve()
    check_folder(folder, overwrite)
    if "torch" in baselines:
        check_torch(config, refit)
    with Runner(names, config.horizon, LEVELS, panel, cache=cache) as runner:
        rolling = Rolling.fit(
            panel, config, n_windows, step_size,
            refit=refit, level=LEVELS, seed=seed, on_progress=on_training,
        )  # fmt: skip
        others, without = [], {}
        if "torch" in baselines:
            theirs, without = _by_torch(rolling, panel, torch_sample, seed, on_torch)
            others += [theirs] if theirs else []
        trained = time.perf_counter() - began
        scores, tests, daily = [], [], []

        def frames() -> Iterator[pd.DataFrame]:
            done = 0
            for origins, forecasts in rolling.batches():
                made = [origins.keys, forecasts, runner.run(origins)]
                made += [_renamed(other.forecasts(origins), rolling) for other in others]
                frame = pd.concat(made, axis=1).assign(latest=origins.latest)
                done += len(origins.panel.ids)
                if membership is not None:
                    ids, cutoffs = frame["unique_id"].to_numpy(), frame["cutoff"].to_numpy()
                    frame = frame[membership.holds(ids, cutoffs)].reset_index(drop=True)
                    if frame.empty:
                        continue
                latest = frame.pop("latest")
                scored = evaluate(frame, by_horizon=True, panel=origins.panel)
                scores.append(scored.dropna(subset="mae"))
                frame = frame.assign(horizon=horizon_of(frame), latest=latest)
                losses = _losses(frame)
                tests.append(_tests(frame, losses, rolling.config.column, step_size))
                daily.append(_daily(frame, losses, scores[-1]))
                if on_forecast:
                    on_forecast(done, len(rolling.panel.ids))
                yield _single_precision(frame.drop(columns=["horizon", "latest"]))

        with atomic.write_folder(folder, replace=overwrite) as temporary:
            write_frames(temporary / FORECASTS, frames())
            if not scores:
                raise DataError(
                    "no series belonged to the universe at any cutoff; look at its file"
                )
            table, tested = pd.concat(scores, ignore_index=True), _adjusted(pd.concat(tests))
            days = pd.concat(daily).groupby(["cutoff", "model"], sort=False).sum()
            days = days.div(days.pop("series"), axis=0).reset_index()
            for name, part in ((SCORES, table), (TESTS, tested), (DAILY, days)):
                part.to_parquet(temporary / name, index=False)
            cutoffs = rolling.panel.times[rolling.cutoffs]
            summary = {
                "model": rolling.config.column,
                "models": models_of_scores(table),
                "series": int(table["unique_id"].nunique()),
                "cutoffs": len(cutoffs),
                "step_size": step_size,
                "horizon": config.horizon,
                "levels": [f"{level:g}" for level in rolling.level],
                "first_cutoff": show_time(cutoffs[0]),
                "last_cutoff": show_time(cutoffs[-1]),
                "first": show_time(rolling.panel.times[0]),
                "last": show_time(rolling.panel.times[-1]),
                "refit": refit,
                "seed": seed,
                "config": dataclasses.asdict(config),
                "target": rolling.panel.target,
                "skipped": {
                    **rolling.panel.skipped,
                    **_never(rolling, table, membership is not None),
                },
                "failed": _failed(runner, without),
                "membership": membership is not None,
                **({"torch_series": len(others[0].panel.ids)} if others else {}),
                "seconds": {
                    "training": sum(m.provenance["training_seconds"] for m, _ in rolling.parts),
                    "fitting": round(trained, 2),
                    **({"torch": torch_seconds(others[0])} if others else {}),
                    "baselines": {name: round(s, 2) for name, s in runner.seconds.items()},
                    "all": round(time.perf_counter() - began, 2),
                },
                "peak_memory_gb": _memory(runner, others),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "python": platform.python_version(),
                "versions": {name: version(name) for name in ("forecaster", "jax", "flax")},
                **(provenance or {}),
            }
            (temporary / SUMMARY).write_text(json.dumps(summary, indent=1, default=str))
            if finish:
                finish(Evaluation(temporary, table, tested, days, summary))
    return Evaluation(folder, table, tested, days, summary)


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raise UsageError for a folder that is there, unless it is an evaluation to overwrite."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected the name of a folder")
    if not overwrite:
        raise UsageError(f"{folder} exists; choose another folder, or add --overwrite")
    names = {path.name for path in folder.iterdir()}
    if names and not {FORECASTS, SCORES, TESTS, DAILY, SUMMARY} <= names:
        raise UsageError(f"{folder} holds no evaluation, so it is not overwritten; choose another")
    if foreign := sorted(names - _OURS):
        raise UsageError(
            f"{folder} holds files that are not an evaluation's ({', '.join(foreign[:3])}), so it "
            "is not overwritten; move them, or choose another folder"
        )


def _by_torch(
    rolling: Rolling, panel: Panel, sample: int, seed: int, on_series
) -> tuple[Rolling | None, dict[str, str]]:
    """Some of the series, evenly picked, by PyTorch, from what was known at the first cutoff; and
    those on which it failed, with the reason."""
    from forecaster.evaluation.baselines import fit_by_torch

    model, _ = rolling.parts[0]
    ids = model.ids[:: max(1, len(model.ids) // max(1, sample))][:sample]
    known = panel.until(panel.times[rolling.cutoffs[0]]).only(ids)
    try:
        theirs = fit_by_torch(known, rolling.config, seed, on_series=on_series)
    except DataError as error:
        return None, dict.fromkeys(ids, str(error).splitlines()[-1].strip())
    failed = {name: why for name, why in theirs.skipped.items() if name in ids}
    both = rolling.panel.only([name for name in rolling.panel.ids if name in set(theirs.ids)])
    return Rolling(both, ((theirs, rolling.cutoffs),), rolling.level), failed


def _renamed(forecasts: pd.DataFrame, rolling: Rolling) -> pd.DataFrame:
    from forecaster.evaluation.baselines import COLUMN

    return forecasts.rename(columns=renamed_columns(forecasts, rolling.config.column, COLUMN))


def _never(rolling: Rolling, scores: pd.DataFrame, members: bool) -> dict[str, str]:
    """Series that were observed at no cutoff, or not after one, or were no members."""
    times = rolling.panel.times[rolling.cutoffs]
    reason = f"no rows at and after a cutoff ({show_time(times[0])} to {show_time(times[-1])})"
    reason += ", or no member of the universe then" if members else ""
    return dict.fromkeys(sorted({*rolling.panel.ids} - {*scores["unique_id"]}), reason)


def _failed(runner: Runner, by_torch: dict[str, str]) -> dict[str, dict[str, str]]:
    return {name: found for name, found in (runner.failed | {"torch": by_torch}).items() if found}


def torch_seconds(other: Rolling) -> float:
    """Seconds that PyTorch trained, over all cores."""
    return round(other.parts[0][0].provenance["training_seconds"], 2)


def models_of_scores(scores: pd.DataFrame) -> list[str]:
    """The models in a table of scores."""
    return list(dict.fromkeys(scores["model"]))


def _single_precision(frame: pd.DataFrame) -> pd.DataFrame:
    """Forecasts as float32, half the room; actual values stay as they are."""
    return frame.astype(dict.fromkeys(frame.columns[4:], np.float32))


def _losses(frame: pd.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    """Absolute error and CRPS of each forecast, by score and model."""
    losses = {}
    for name in models_of(frame.drop(columns="latest")):
        losses["mae", name] = metrics.absolute_error(frame["y"], frame[name])
        if places := quantile_columns(frame, name):
            values = frame[list(places.values())].to_numpy()
            losses["crps", name] = metrics.crps(frame["y"], values, list(places))
    return losses


def _daily(frame: pd.DataFrame, losses, scores: pd.DataFrame) -> pd.DataFrame:
    """Sums over series of the losses one step ahead, in units of the series' changes, by cutoff."""
    first = scores.drop_duplicates("unique_id").set_index("unique_id")
    unit = frame["unique_id"].map(first["mase"] / first["mae"]).to_numpy()
    usable = (frame["horizon"] == 1).to_numpy() & np.isfinite(unit)
    parts = []
    for name in dict.fromkeys(model for _, model in losses):
        part = {score: (loss * unit)[usable] for (score, m), loss in losses.items() if m == name}
        parts.append(frame.loc[usable, ["cutoff"]].assign(model=name, series=1, **part))
    together = pd.concat(parts).dropna(subset="mae")
    return together.groupby(["cutoff", "model"], sort=False).sum().reset_index()


def _tests(frame: pd.DataFrame, losses, model: str, step: int) -> pd.DataFrame:
    """Tests of every series: of our model against the others at each horizon, by absolute error and
    CRPS; of every model's value at risk and direction, one step ahead."""
    models = dict.fromkeys(name for _, name in losses)
    quantiles = {name: quantile_columns(frame, name) for name in models}
    rows = []
    groups = frame.groupby(["unique_id", "horizon"], sort=False).indices
    for (name, horizon), index in groups.items():  # pyright: ignore[reportGeneralTypeIssues]
        lags = -(-int(horizon) // step) - 1
        for score, other in [key for key in losses if key[1] != model]:
            ours, theirs = losses[score, model][index], losses[score, other][index]
            tested = significance.diebold_mariano(ours, theirs, lags)
            known = np.isfinite(ours).all() and np.isfinite(theirs).all()
            better = float(np.mean(ours) < np.mean(theirs)) if known else np.nan
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
        if not np.isfinite(forecast).all():
            continue
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


def _memory(runner: Runner, others: list[Rolling]) -> dict[str, float]:
    """Peaks in GB: this process, and the processes of the baselines and of PyTorch together."""
    used = {"forecaster": memory_used()[1], "baselines": sum(runner.memory.values())}
    for other in others:
        by_process = other.parts[0][0].report.groupby("process")["process_memory"].max()
        used["torch"] = int(by_process.sum())
    return {name: round(kib / 2**20, 2) for name, kib in used.items()}
