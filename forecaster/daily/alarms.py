"""Raise alarms from the rows that came, and from the model that forecasts."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from forecaster.daily.watch import Limits
from forecaster.home import run_name, run_time
from forecaster.ingest import Ingested, is_shrunk, is_vanished
from forecaster.record import Alarm

if TYPE_CHECKING:
    from forecaster.pipeline import Prediction

LATE, JUMPED, FROZEN, SHRUNK, CHANGED, MODEL = (
    "late", "jumped", "frozen", "shrunk", "changed", "model",
)  # fmt: skip


def alarms_of_rows(
    arrived: Ingested, known: Iterable[str] | None, limits: Limits
) -> tuple[list[Alarm], dict[str, str]]:
    """Return the alarms of an update, and the series that it could not bring up to date.

    ``known``: the active series before it; None: unknown, so that none is new
    """
    alarms: list[Alarm] = []
    partly = {name: str(why) for name, why in arrived.skipped.items()} | dict(arrived.partly)
    for name, why in arrived.stale.items():
        if limits.shrunk and is_shrunk(why):
            alarms.append(Alarm(SHRUNK, name, "", why))
        elif limits.changed and is_vanished(why):
            alarms.append(Alarm(CHANGED, name, "", why))
        else:
            partly[name] = why
    if limits.changed and known is not None:
        before, retired = set(known), set(arrived.retired)
        new = [name for name in arrived.ids if name not in before and name not in retired]
        alarms += [Alarm(CHANGED, name, "", "new in the source") for name in new]
    return alarms, partly


def alarms_of_prediction(
    made: "Prediction", limits: Limits, now: datetime
) -> tuple[list[Alarm], dict[str, str]]:
    """Return the alarms of a prediction, and the series that it left out or are late."""
    alarms: list[Alarm] = []
    if limits.jumped:
        alarms += _jumps(made)
    if limits.frozen:
        alarms += [
            Alarm(FROZEN, name, day, "the same price; if it is not traded, its band is too narrow")
            for name, day in made.frozen.items()
        ]
    late, partly = _late(made, limits.late)
    alarms += late
    alarms += _age(made, limits.model_age, now)
    return alarms, {name: str(why) for name, why in made.unknown.items()} | partly


def _jumps(made: "Prediction") -> Iterator[Alarm]:
    for name, one in made.proposed.items():
        text = (
            f"prices before {one.time} look unadjusted: {one.why}. `forecaster adjust` lists the "
            "proposals and applies them"
        )
        yield Alarm(JUMPED, name, "", text)
    for name, day in made.jumped.items():
        if name not in made.proposed:
            yield Alarm(JUMPED, name, day, "jumped without a split or dividend")


def _late(made: "Prediction", most: int | None) -> tuple[list[Alarm], dict[str, str]]:
    """Return alarms of series that lack sessions, and those that lack fewer than the limit."""
    ended = set(made.ended)
    if most is None or made.simulated:
        behind: Mapping[str, int] = {} if made.simulated else made.behind
        return [], {name: _lacks(count, made.ends[name]) for name, count in behind.items()}
    lacking = {name: count for name, count in made.late.items() if count and name not in ended}
    late = {name: count for name, count in lacking.items() if count > most}
    # All of them, too: their forecasts begin with a day that is over.
    partly = {n: _lacks(count, made.ends[n]) for n, count in lacking.items() if n not in late}
    together = {name: count for name, count in late.items() if name not in made.behind}
    alarms = [
        Alarm(LATE, name, "", _lacks(count, made.ends[name]))
        for name, count in late.items()
        if name not in together
    ]
    if together:
        name, count = max(together.items(), key=lambda item: item[1])
        text = (
            f"{len(together)} of {len(made.late)} series; {name} {_lacks(count, made.ends[name])}. "
            "Is the source brought up to date? late = false turns this alarm off"
        )
        alarms.append(Alarm(LATE, None, "", text))
    return alarms, partly


def _lacks(count: int, end: str) -> str:
    return f"ends {end}, {count} session{'' if count == 1 else 's'} behind"


def _age(made: "Prediction", most: int | None, now: datetime) -> Iterator[Alarm]:
    """Yield the alarm of a model that was fitted too long ago."""
    fitted = run_time(made.run)
    if most is None or fitted is None or made.simulated or (now - fitted).days <= most:
        return
    text = f"run {run_name(made.run)} was fitted {(now - fitted).days} days ago; fit again"
    yield Alarm(MODEL, None, "", text)
