"""Evaluate a panel from end to end: forecasts, scores and tests of all series, in a folder."""

import dataclasses
import shutil
import time
from pathlib import Path

from forecaster import swarm
from forecaster.errors import check_flag, check_type
from forecaster.evaluation.backtest.forecasters import Forecasters, by_torch, torch_sample
from forecaster.evaluation.backtest.options import LEVELS, BacktestCallbacks, BacktestOptions
from forecaster.evaluation.backtest.parts import join_parts, measure_part, summary_of_parts
from forecaster.evaluation.backtest.result import Evaluation, check_folder
from forecaster.evaluation.backtest.summary import Provenance
from forecaster.evaluation.baselines import Runner, check_columns
from forecaster.evaluation.origins.cutoffs import usual_windows
from forecaster.evaluation.origins.rolling_origin import RollingOrigin
from forecaster.files import as_folder, atomic
from forecaster.forecasting import Config, check_training, checked_config, premium_of, with_declared
from forecaster.series import Panel, aligned_if, default_season


def evaluate_to_folder(
    folder: Path,
    panel: Panel,
    config: Config | None = None,
    options: BacktestOptions | None = None,
    *,
    overwrite: bool = False,
    executor: swarm.Executor | None = None,
    callbacks: BacktestCallbacks | None = None,
) -> Evaluation:
    """Forecast from a rolling origin by our networks and baselines; score and test the forecasts.

    The results are written into a folder, which appears whole or not at all.

    - ``folder``: a new folder, or an evaluation to ``overwrite``
    - ``config``: settings of our networks and PyTorch's
    - ``executor``: where networks train and slow baselines run

    Raises UsageError for an unknown baseline or one whose library is not installed, and for groups
    that name other series; DataError when the panel is too short, or when no series belonged to the
    universe at any cutoff.
    """
    began = time.perf_counter()
    options = BacktestOptions() if options is None else options
    callbacks = BacktestCallbacks() if callbacks is None else callbacks
    for name, value, kind in (
        ("panel", panel, Panel), ("options", options, BacktestOptions),
        ("callbacks", callbacks, BacktestCallbacks),
    ):  # fmt: skip
        check_type(name, value, kind, f"a {kind.__name__}")
    check_training(options.seed, executor=executor)
    check_flag("overwrite", overwrite)
    config, folder = checked_config(config), as_folder(folder).resolve()
    check_folder(folder, overwrite=overwrite)
    options.check(config)
    check_columns(options.runner_names, panel.channels)
    groups = options.groups.of(panel.ids) if options.groups else {}
    config, panel = with_declared(config, panel)
    ends = "common" if options.membership is not None else options.ends
    panel, own = aligned_if(ends, panel)
    windows = options.n_windows or usual_windows(
        panel.mask.sum(1), len(panel.times), panel.target, config, options.step_size
    )
    networks = RollingOrigin.fit(
        panel, config, windows, options.step_size, refit=options.refit, level=LEVELS,
        seed=options.seed, executor=executor, on_progress=callbacks.training,
    )  # fmt: skip
    known = panel.until(panel.times[networks.cutoffs[0]])
    torch: tuple[RollingOrigin | None, dict[str, str]] = None, {}
    if options.with_torch:
        sample = torch_sample(networks.parts[0][0].ids, options.torch_sample)
        torch = by_torch(networks, known.only(sample), options.seed, callbacks.torch)
    fitting = time.perf_counter() - began
    runner = Runner(
        options.runner_names, config.horizon, LEVELS, known,
        season=config.season, executor=executor, premium=premium_of(networks.config, known),
    )  # fmt: skip
    with atomic.write_folder(folder, replace=overwrite) as temporary:
        part = temporary / "part"
        measured = measure_part(
            part, Forecasters(networks, runner, *torch), options,
            default_season(known.frequency), own, on_forecast=callbacks.forecast,
        )  # fmt: skip
        networks.warn_of_ended()
        seconds = dataclasses.replace(
            measured.seconds,
            training=sum(model.provenance["training_seconds"] for model, _ in networks.parts),
            fitting=round(fitting, 2),
            all=round(time.perf_counter() - began, 2),
        )
        groups = {name: groups[name] for name in networks.panel.ids if name in groups}
        summary = summary_of_parts(
            [measured], seconds=seconds, provenance=Provenance().stamped(), groups=groups
        )
        join_parts([part], temporary, summary)
        shutil.rmtree(part)
        evaluation = Evaluation.read(temporary)
    return dataclasses.replace(evaluation, folder=folder)
