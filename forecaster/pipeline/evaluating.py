"""From a source to an evaluation."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from forecaster import atomic, swarm
from forecaster.config import Config
from forecaster.evaluation import (
    BacktestCallbacks,
    BacktestOptions,
    Evaluation,
    Provenance,
    check_folder,
    evaluate_to_folder,
)
from forecaster.evaluation.baselines import check_available, check_torch
from forecaster.home import Home
from forecaster.ingest import (
    check_flags,
    flags_of,
    ingested,
    panel_from_store,
)
from forecaster.pipeline.market import wanted_of, with_market_of
from forecaster.pipeline.memory import check_room
from forecaster.pipeline.requests import Callbacks, DataRequest


def evaluate_from_home(
    home: Home,
    data: DataRequest,
    config: Config,
    options: BacktestOptions,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    finish: Callable[[Evaluation], None] | None = None,
    executor: swarm.Executor | None = None,
    fetching: Callbacks | None = None,
    evaluating: BacktestCallbacks | None = None,
) -> Evaluation:
    """Fetch into the store, and evaluate in a folder.

    Rows with a flag of the mask are left out of training where the flag was known at the cutoff;
    the rows that forecasts are compared with all stay.

    - ``options``: what to evaluate against what; baselines are kept under ``home``
    - ``folder``: by default a new one under ``home``; one that exists is an error unless it is an
      evaluation to ``overwrite``
    - ``finish``: adds to the evaluation's folder before it appears
    - ``executor``: where networks train and slow baselines are made, as for :func:`forecaster.fit`
    - ``fetching``, ``evaluating``: what is called meanwhile
    """
    fetching = fetching or Callbacks()
    check_flags(data.mask)
    atomic.sweep(home.evaluations)
    folder = (folder or home.new_evaluation()).resolve()
    check_folder(folder, overwrite=overwrite)
    check_available([name for name in options.baselines if name != "torch"])
    if options.with_torch:
        check_torch(config, refit=options.refit)
    swarm.keep_compiled(home.cache)
    with ingested(
        home, data.source, wanted_of(data, config),
        start=data.start, on_series=fetching.on_series, on_wait=fetching.on_wait,
    ) as arrived:  # fmt: skip
        store = arrived.store
        ids, config = with_market_of(arrived, data, config)
        check_room(store, arrived.ids, config, "an evaluation")
        panel = panel_from_store(
            store, arrived.ids, dict(arrived.skipped), start=data.start, end=data.end
        )
        if config.market is not None:
            panel = panel.with_market(config.market, forecast=config.market in ids)
        if data.mask:
            panel = panel.with_flags(flags_of(store.flags(), data.mask))
    panel = data.covariates.added_to(panel)
    provenance = Provenance(
        source=data.source.name,
        data_sha256=store.digest(arrived.ids),
        mask=tuple(data.mask),
        stale=arrived.stale,
    )
    return evaluate_to_folder(
        folder, panel, config, dataclasses.replace(options, cache=home.baselines_cache),
        overwrite=overwrite, provenance=provenance, finish=finish, executor=executor,
        callbacks=evaluating,
    )  # fmt: skip
