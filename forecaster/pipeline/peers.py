"""Read the peers of stored prices, a sample of all series of a fit, beside some of its series."""

import dataclasses
from collections.abc import Callable, Sequence

from forecaster.config import Config
from forecaster.errors import NoSeries, StoreError
from forecaster.series import Panel, peers_among


def beside_peers(
    read: Callable[[Sequence[str]], Panel],
    wanted: Sequence[str],
    ids: Sequence[str],
    config: Config,
) -> Panel:
    """Read some series with the peers of their prices.

    Other series have none, nor have prices with independent networks. Raises NoSeries or StoreError
    if none of the series can be read.

    - ``read``: reads series
    - ``wanted``: the series to read
    - ``ids``: all series of the fit, from which the peers are drawn
    """
    panel = read(wanted)
    if panel.target == "y" or config.start != "pooled" or config.is_classical:
        return panel
    names = peers_among(ids)
    if set(names) <= set(wanted):
        return panel.with_peers(names)
    try:
        peers = read(names)
    except (NoSeries, StoreError):
        return panel
    return dataclasses.replace(panel, peers=peers)
