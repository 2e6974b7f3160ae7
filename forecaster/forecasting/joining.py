"""Models of different series as one."""

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType

import jax
import numpy as np
import pandas as pd

from forecaster.forecasting.model import Model


def join_models(models: Sequence[Model]) -> Model:
    """The series of all parts of one fit, in their order; what they share is that of the first."""
    first = models[0]
    if len(models) == 1:
        return first
    natures = {name: one for model in models for name, one in model.transform.natures.items()}
    networks = dataclasses.replace(
        first.networks,
        ids=tuple(name for model in models for name in model.ids),
        params=jax.tree.map(lambda *leaves: np.concatenate(leaves), *(m.params for m in models)),
        report=pd.concat([model.report for model in models]),
    )
    return dataclasses.replace(
        first,
        networks=networks,
        transform=dataclasses.replace(first.transform, natures=MappingProxyType(natures)),
        normal_scores=np.concatenate([model.normal_scores for model in models]),
        fitted_until=np.concatenate([model.fitted_until for model in models]),
        spacing=np.concatenate([model.spacing for model in models]),
        skipped=MappingProxyType({n: w for model in models for n, w in model.skipped.items()}),
    )
