"""Evaluate the series of a source, and continue an evaluation that was interrupted."""

from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from forecaster import swarm
from forecaster.errors import DataError, ModelError
from forecaster.evaluation import (
    BacktestOptions,
    Evaluation,
    Provenance,
    RollingOrigin,
    check_folder,
    evaluate_to_folder,
)
from forecaster.files import Home, as_text, atomic, from_text
from forecaster.forecasting import Config
from forecaster.ingest import flags_of
from forecaster.pipeline.beginning import Begun, Callbacks, DataRequest, begun, resumed
from forecaster.pipeline.blocks import Reader
from forecaster.pipeline.book_file import read_books
from forecaster.pipeline.past_risk import positions_in, write_past_risk
from forecaster.portfolio import Book
from forecaster.storage import EvaluationRequest, checkpoint_of, ids_to_read


def evaluate_from_home(
    home: Home,
    data: DataRequest,
    config: Config,
    options: BacktestOptions,
    *,
    folder: Path | None = None,
    book: Path | None = None,
    overwrite: bool = False,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> Evaluation:
    """Fetch series into the store, and evaluate them in a folder.

    Rows with a flag of the mask are left out of training if the flag was known at the cutoff.
    Forecasts are compared with all rows.

    - ``home``, ``data``, ``config``: as for :func:`fit_to_home`
    - ``options``: the options of the evaluation
    - ``folder``: by default a new one under ``home``; an existing folder must hold an evaluation,
      and needs ``overwrite``
    - ``book``: a file of positions, whose risk at each cutoff is compared with the losses that came
    - ``executor``: where networks train and slow baselines run, as for :func:`forecaster.fit`
    - ``callbacks``: see :class:`Callbacks`

    An interrupted evaluation is continued by :func:`resume_evaluation`.

    Raises UsageError if the series do not fit into the free memory together.
    """
    options.check(config)
    atomic.sweep(home.evaluations)
    folder = (folder or home.new_evaluation()).resolve()
    check_folder(folder, overwrite=overwrite)
    plain = msgspec.to_builtins(options, enc_hook=_to_plain)
    plain["books"] = [] if book is None else msgspec.to_builtins(read_books(book))
    with begun(
        home, data, config, options.seed,
        evaluation=EvaluationRequest(as_text(folder), overwrite, plain),
        executor=executor, callbacks=callbacks or Callbacks(),
    ) as work:  # fmt: skip
        if options.groups:
            options.groups.of(work.unfinished.request.ids)  # raises before the work begins
        return _evaluate(work)


def resume_evaluation(
    home: Home,
    name: str | None,
    *,
    executor: swarm.Executor | None = None,
    callbacks: Callbacks | None = None,
) -> Evaluation:
    """Continue an evaluation that was interrupted, with the same results.

    ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; None: the only unfinished
    evaluation that is not running. Raises UsageError if there is none, it is running, or there are
    several; ModelError if data or program have changed since.
    """
    with resumed(home, name, "evaluate", executor, callbacks or Callbacks()) as work:
        return _evaluate(work)


def _evaluate(work: Begun) -> Evaluation:
    """Do the remaining work of an evaluation, and remove its unfinished folder."""
    unfinished, asked = work.unfinished, work.unfinished.request.evaluation
    if asked is None:
        raise ModelError(f"{unfinished.name}: is not an evaluation, although its name says so")
    options = msgspec.convert(asked.options, BacktestOptions, dec_hook=_from_plain)
    books = msgspec.convert(asked.options.get("books", []), list[Book])
    request, calls = unfinished.request, work.callbacks
    panel = Reader.from_request(work.store, request, skipped=request.skipped).panel(request.ids)
    if books:
        positions_in(panel, books)  # raises before the work begins
    if request.mask:  # rows are not learned from once their flag is known
        panel = panel.with_flags(flags_of(work.store.flags(), request.mask))
    provenance = Provenance(
        source=request.source, mask=request.mask, stale=dict(request.stale),
        data_sha256=work.store.index.digest(ids_to_read(request.ids, request.config)),
    )  # fmt: skip
    work.lock.close()  # all series have been read

    def finish(evaluation: Evaluation, networks: RollingOrigin) -> None:
        if books:
            write_past_risk(evaluation.folder, networks, books)
        if calls.on_evaluation:
            calls.on_evaluation(evaluation)

    try:
        evaluation = evaluate_to_folder(
            from_text(asked.folder), panel, request.config, options,
            overwrite=asked.overwrite, executor=work.executor, provenance=provenance,
            checkpoints=lambda number: checkpoint_of(unfinished.shard(number)),
            on_progress=calls.on_training, on_torch=calls.on_torch, on_forecast=calls.on_forecast,
            finish=finish,
        )  # fmt: skip
    except DataError as error:
        if not getattr(error, "lost", ()):
            unfinished.discard()  # the same error would end another try
        raise
    unfinished.discard()
    return evaluation


def _to_plain(value: Any) -> Any:
    """Return the spans of a membership or a path of an evaluation's options as plain values."""
    if isinstance(value, pd.DataFrame):
        return value.astype(str).to_dict("list")
    return as_text(value)


def _from_plain(kind: type, value: Any) -> Any:
    """Return what :func:`_to_plain` was given."""
    if kind is pd.DataFrame:
        return pd.DataFrame(value).astype(dict.fromkeys(("start", "end"), "datetime64[ns]"))
    return from_text(value)
