"""What can be told of a run that was just fitted, without its networks."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from forecaster.config import Config
from forecaster.forecasting import Model
from forecaster.series import Scaling
from forecaster.storage import read_report


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Of all series of a run.

    - ``config, target, provenance, skipped``: as of a :class:`forecaster.Model`
    - ``report``: how the training of each series went, a row each
    - ``covariates``: what else the networks see
    - ``shards``: how many it has; None: it is one model
    """

    config: Config
    target: str
    provenance: Mapping[str, Any]
    skipped: Mapping[str, str]
    report: pd.DataFrame
    covariates: Scaling
    shards: int | None = None

    @staticmethod
    def of(model: Model) -> "RunFacts":
        """Of a model."""
        return RunFacts(
            model.config, model.target, model.provenance, model.skipped, model.report,
            model.transform.covariates,
        )  # fmt: skip

    @staticmethod
    def of_shards(folder: Path, first: Model) -> "RunFacts":
        """Of a run in shards; ``first``: the model of one of them."""
        report, skipped, shards = read_report(folder)
        facts = RunFacts.of(first)
        return dataclasses.replace(facts, report=report, skipped=skipped, shards=shards)
