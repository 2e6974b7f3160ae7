"""Evaluate the series of a source, and continue an evaluation that was interrupted."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forecaster import swarm
from forecaster.config import Config
from forecaster.errors import DataError, ModelError, UsageError
from forecaster.evaluation import (
    BacktestCallbacks,
    BacktestOptions,
    Evaluation,
    Provenance,
    check_folder,
)
from forecaster.files import as_text, atomic, from_text
from forecaster.forecasting import check_auxiliary
from forecaster.home import Home
from forecaster.ingest import (
    Groups,
    Membership,
    Store,
    check_flags,
    flags_of,
    ingested,
    masked_rows,
)
from forecaster.pipeline.market import wanted_of, with_market_of
from forecaster.pipeline.measuring import Job, evaluate_shards
from forecaster.pipeline.reading import check_covariates
from forecaster.pipeline.requests import Callbacks, DataRequest, check_memory, request_of
from forecaster.processes import check_guarded
from forecaster.storage import (
    EvaluationRequest,
    FitRequest,
    UnfinishedFit,
    ids_to_read,
    tell_of_others,
)


class _Calls(NamedTuple):
    """The executor and the callbacks of :func:`evaluate_from_home`."""

    finish: Callable[[Evaluation], None] | None
    executor: swarm.Executor | None
    fetching: Callbacks
    evaluating: BacktestCallbacks


def evaluate_from_home(
    home: Home,
    data: DataRequest,
    config: Config,
    options: BacktestOptions,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    memory: int | None = None,
    finish: Callable[[Evaluation], None] | None = None,
    executor: swarm.Executor | None = None,
    fetching: Callbacks | None = None,
    evaluating: BacktestCallbacks | None = None,
) -> Evaluation:
    """Fetch series into the store, and evaluate them in a folder.

    Rows with a flag of the mask are left out of training if the flag was known at the cutoff.
    Forecasts are compared with all rows.

    - ``home``, ``data``, ``config``: as for :func:`fit_to_home`
    - ``options``: the options of the evaluation
    - ``folder``: by default a new one under ``home``; an existing folder must hold an evaluation,
      and needs ``overwrite``
    - ``memory``: bytes to work in; by default a share of the free memory. Series that need more are
      evaluated in shards, with the same results. The store then stays locked until the end, and the
      evaluation is read in its short form (:meth:`Evaluation.read`)
    - ``finish``: adds files to the evaluation's folder before it appears
    - ``executor``: where networks train and slow baselines run, as for :func:`forecaster.fit`
    - ``fetching``, ``evaluating``: callbacks

    An interrupted evaluation is continued by :func:`resume_evaluation`.
    """
    _check(data, config, options, memory)
    atomic.sweep(home.evaluations)
    folder = (folder or home.new_evaluation()).resolve()
    check_folder(folder, overwrite=overwrite)
    swarm.keep_compiled(home.programs)
    calls = _Calls(finish, executor, fetching or Callbacks(), evaluating or BacktestCallbacks())
    with contextlib.ExitStack() as lock:
        arrived = lock.enter_context(
            ingested(
                home, data.source, wanted_of(data, config), start=data.start,
                on_series=calls.fetching.on_series, on_wait=calls.fetching.on_wait,
            )
        )  # fmt: skip
        ids, config = with_market_of(arrived, data, config)
        arrived = arrived._replace(ids=ids)
        masked = masked_rows(arrived.store, ids_to_read(ids, config), data.mask, data.end)
        request = request_of(
            arrived, data, config, options.seed, masked,
            evaluation=_as_request(options, folder, arrived.stale, overwrite=overwrite),
            memory=memory, executor=executor,
        )  # fmt: skip
        if options.groups:
            options.groups.of(ids)  # raises before the work begins
        tell_of_others(home, calls.fetching.on_notice or (lambda message: None))
        with UnfinishedFit.begin(home, request) as unfinished:
            return _evaluate(unfinished, arrived.store, lock, options, calls)


def _check(data: DataRequest, config: Config, options: BacktestOptions, memory: int | None) -> None:
    """Raise UsageError for options that cannot work, before anything is fetched."""
    check_flags(data.mask)
    options.check(config)
    check_guarded("an evaluation")
    check_memory(data, memory, "an evaluation")
    if data.learn_from is not None:
        check_auxiliary(config)


def _evaluate(
    unfinished: UnfinishedFit,
    store: Store,
    lock: contextlib.ExitStack,
    options: BacktestOptions,
    calls: _Calls,
) -> Evaluation:
    """Do the remaining work of an evaluation, and remove its unfinished folder.

    ``lock``: keeps the store unchanged until all series have been read.
    """
    request = unfinished.request
    asked = request.evaluation
    assert asked is not None
    check_covariates(request, "evaluate")
    if calls.fetching.on_begin:
        calls.fetching.on_begin(unfinished)
    ids = ids_to_read(request.ids, request.config)
    origin = Provenance(
        source=request.source, data_sha256=store.digest(ids), mask=request.mask,
        stale=dict(asked.stale), unfinished=unfinished.name,
    )  # fmt: skip
    flags = flags_of(store.flags(), request.mask) if request.mask else None
    on_training = calls.evaluating.training or calls.fetching.on_training
    fetching = dataclasses.replace(calls.fetching, on_training=on_training)
    job = Job(unfinished, store, lock, flags, options, calls.executor, fetching, calls.evaluating)
    try:
        evaluation = evaluate_shards(
            job, from_text(asked.folder), origin.stamped(), calls.finish, overwrite=asked.overwrite
        )
    except DataError as error:
        if not getattr(error, "lost", ()):
            unfinished.discard()  # the same error would end another try
        raise
    unfinished.discard()
    return evaluation


def resume_evaluation(
    home: Home,
    name: str | None = None,
    *,
    finish: Callable[[Evaluation], None] | None = None,
    executor: swarm.Executor | None = None,
    fetching: Callbacks | None = None,
    evaluating: BacktestCallbacks | None = None,
) -> Evaluation:
    """Continue an evaluation that was interrupted, with the same results.

    ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; by default the only
    unfinished evaluation that is not running. The other arguments are as for
    :func:`evaluate_from_home`. Raises UsageError if there is none, it is running, or there are
    several; ModelError if data or program have changed since.
    """
    calls = _Calls(finish, executor, fetching or Callbacks(), evaluating or BacktestCallbacks())
    swarm.keep_compiled(home.programs)
    with UnfinishedFit.find(home, name, command="evaluate") as unfinished:
        asked = unfinished.request.evaluation
        if asked is None:
            raise ModelError(f"{unfinished.name}: is not an evaluation, although its name says so")
        folder = from_text(asked.folder)
        if (there := _ended(folder, unfinished.name)) is not None:
            unfinished.discard()
            return there
        check_folder(folder, overwrite=asked.overwrite)
        store = Store.open(home, unfinished.request.source)
        with contextlib.ExitStack() as lock:
            lock.enter_context(store.locked(calls.fetching.on_wait))
            unfinished.masked_rows(store)  # raises if the data have changed
            options = _options(unfinished.request)
            return _evaluate(unfinished, store, lock, options, calls)


def _ended(folder: Path, name: str) -> Evaluation | None:
    """Return the evaluation in a folder if this unfinished evaluation had already written it."""
    try:
        evaluation = Evaluation.read(folder, in_short=True)
    except (UsageError, DataError):
        return None
    return evaluation if evaluation.summary.provenance.unfinished == name else None


def _as_request(
    options: BacktestOptions, folder: Path, stale: Mapping[str, str], *, overwrite: bool
) -> EvaluationRequest:
    """Return the options of an evaluation in the form in which they are stored."""
    spans, groups = options.membership and options.membership.spans, options.groups
    return EvaluationRequest(
        folder=as_text(folder),
        overwrite=overwrite,
        n_windows=options.n_windows,
        step_size=options.step_size,
        baselines=tuple(options.baselines),
        refit=options.refit,
        torch_sample=options.torch_sample,
        ends=options.ends,
        spans=None if spans is None else tuple(
            (str(name), start.isoformat(), end.isoformat())
            for name, start, end in spans.itertuples(index=False)
        ),
        groups=None if groups is None else dict(groups.group),
        groups_file=None if groups is None else as_text(groups.path),
        stale=dict(stale),
    )  # fmt: skip


def _options(request: FitRequest) -> BacktestOptions:
    """Return the options from a stored request."""
    asked, membership, groups = request.evaluation, None, None
    assert asked is not None
    if asked.spans is not None:
        rows = [(name, pd.Timestamp(start), pd.Timestamp(end)) for name, start, end in asked.spans]
        membership = Membership(pd.DataFrame(rows, columns=["unique_id", "start", "end"]))
    if asked.groups is not None:
        groups = Groups(from_text(asked.groups_file or ""), asked.groups)
    return BacktestOptions(
        asked.n_windows, asked.step_size, asked.baselines, asked.refit, request.seed,
        asked.torch_sample, membership, asked.ends, groups,
    )  # fmt: skip
