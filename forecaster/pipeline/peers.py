"""Read the peers of stored prices, a sample of all series of a fit, beside some of its series."""

import dataclasses
from collections.abc import Callable, Sequence

from forecaster.errors import NoSeries, StoreError
from forecaster.series import Panel


def beside_peers(
    read: Callable[[Sequence[str]], Panel], wanted: Sequence[str], names: Sequence[str]
) -> Panel:
    """Read some series with peers. Raises NoSeries or StoreError if no series can be read.

    - ``read``: reads series
    - ``wanted``: the series to read
    - ``names``: the peers
    """
    panel = read(wanted)
    if set(names) <= set(wanted):
        return panel.with_peers(names)
    try:
        peers = read(names)
    except (NoSeries, StoreError):
        return panel
    return dataclasses.replace(panel, peers=peers)
