"""Evaluate the series of a source, and continue an evaluation that was interrupted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster.errors import DataError, ModelError
from forecaster.evaluation import (
    BacktestOptions,
    Evaluation,
    Provenance,
    check_folder,
)
from forecaster.files import Home, as_text, atomic, from_text
from forecaster.forecasting import Config
from forecaster.ingest import Groups, Membership, flags_of
from forecaster.pipeline.beginning import Begun, begun, resumed
from forecaster.pipeline.measuring import Calls, Job, evaluate_shards
from forecaster.pipeline.requests import DataRequest
from forecaster.storage import EvaluationRequest, ids_to_read

_OBJECTS = ("membership", "groups")  # options that are no plain values


def evaluate_from_home(
    home: Home,
    data: DataRequest,
    config: Config,
    options: BacktestOptions,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    memory: int | None = None,
    calls: Calls = Calls(),  # noqa: B008
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
    - ``calls``: the executor and callbacks

    An interrupted evaluation is continued by :func:`resume_evaluation`.
    """
    options.check(config)
    atomic.sweep(home.evaluations)
    folder = (folder or home.new_evaluation()).resolve()
    check_folder(folder, overwrite=overwrite)
    asked = EvaluationRequest(as_text(folder), overwrite, _plain(options))
    with begun(
        home, data, config, options.seed,
        evaluation=asked, memory=memory, executor=calls.executor, callbacks=calls.fetching,
    ) as work:  # fmt: skip
        if options.groups:
            options.groups.of(work.unfinished.request.ids)  # raises before the work begins
        return _evaluate(work, asked, options, calls)


def resume_evaluation(home: Home, name: str | None, calls: Calls) -> Evaluation:
    """Continue an evaluation that was interrupted, with the same results.

    ``name``: as listed by :func:`forecaster.storage.unfinished_fits`; None: the only unfinished
    evaluation that is not running. Raises UsageError if there is none, it is running, or there are
    several; ModelError if data or program have changed since.
    """
    with resumed(home, name, "evaluate", calls.fetching) as work:
        asked = work.unfinished.request.evaluation
        if asked is None:
            name = work.unfinished.name
            raise ModelError(f"{name}: is not an evaluation, although its name says so")
        check_folder(from_text(asked.folder), overwrite=asked.overwrite)
        return _evaluate(work, asked, _options(asked.options), calls)


def _evaluate(
    work: Begun, asked: EvaluationRequest, options: BacktestOptions, calls: Calls
) -> Evaluation:
    """Do the remaining work of an evaluation, and remove its unfinished folder."""
    unfinished, request = work.unfinished, work.unfinished.request
    digest = work.store.index.digest(ids_to_read(request.ids, request.config))
    origin = Provenance(
        source=request.source, data_sha256=digest, mask=request.mask, stale=dict(request.stale)
    )
    flags = flags_of(work.store.flags(), request.mask) if request.mask else None
    try:
        evaluation = evaluate_shards(
            Job(work, flags, options, calls), from_text(asked.folder), origin.stamped(),
            overwrite=asked.overwrite,
        )  # fmt: skip
    except DataError as error:
        if not getattr(error, "lost", ()):
            unfinished.discard()  # the same error would end another try
        raise
    unfinished.discard()
    return evaluation


def _plain(options: BacktestOptions) -> dict[str, Any]:
    """Return the options of an evaluation as values that JSON can store."""
    spans, groups = options.membership and options.membership.spans, options.groups
    return {
        **{name: value for name, value in vars(options).items() if name not in _OBJECTS},
        "spans": spans
        if spans is None
        else [
            [str(name), start.isoformat(), end.isoformat()]
            for name, start, end in spans.itertuples(index=False)
        ],
        "groups": None if groups is None else [as_text(groups.path), dict(groups.group)],
    }


def _options(plain: Mapping[str, Any]) -> BacktestOptions:
    """Return the options of :func:`_plain`."""
    rest = {**plain, "baselines": tuple(plain["baselines"])}
    spans, groups = rest.pop("spans"), rest.pop("groups")
    if spans is not None:
        rows = [(name, pd.Timestamp(start), pd.Timestamp(end)) for name, start, end in spans]
        rest["membership"] = Membership(pd.DataFrame(rows, columns=["unique_id", "start", "end"]))
    if groups is not None:
        rest["groups"] = Groups(from_text(groups[0]), groups[1])
    return BacktestOptions(**rest)
