"""Raise alarms from the rows that came, and from the model that forecasts."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from forecaster import pipeline
from forecaster.daily.watch import Limits
from forecaster.files import run_name, run_time
from forecaster.ingest import Ingested, is_shrunk, is_vanished
from forecaster.record import Alarm

LATE, JUMPED, FROZEN, SHRUNK, CHANGED, MODEL, RISK = (
    "late", "jumped", "frozen", "shrunk", "changed", "model", "risk",
)  # fmt: skip


def alarms_of_rows(
    arrived: Ingested, known: Iterable[str] | None, limits: Limits
) -> tuple[list[Alarm], dict[str, str]]:
    """Return the alarms of an update, and the series that it could not bring up to date.

    ``known``: the active series before it; None: unknown, so that none is new
    """
    alarms: list[Alarm] = []
    partly = {name: str(why) for name, why in arrived.skipped.items()}
    for name, why in arrived.stale.items():
        if limits.shrunk and is_shrunk(why):
            alarms.append(Alarm(SHRUNK, name, "", why))
        elif limits.changed and is_vanished(why):
            alarms.append(Alarm(CHANGED, name, "", why))
        else:
            partly[name] = why
    if limits.changed and known is not None:
        before, active = set(known), arrived.store.index.latest
        new = [name for name in arrived.ids if name in active and name not in before]
        alarms += [Alarm(CHANGED, name, "", "new in the source") for name in new]
    return alarms, partly


def alarms_of_prediction(
    made: "pipeline.Prediction", limits: Limits, now: datetime
) -> tuple[list[Alarm], dict[str, str]]:
    """Return the alarms of a prediction, and the series that it left out or are late."""
    alarms: list[Alarm] = []
    if limits.jumped:
        alarms += _jumps(made)
    if limits.frozen:
        alarms += [
            Alarm(
                FROZEN,
                name,
                one.said,
                "the same price; if it is not traded, its band is too narrow",
            )
            for name, one in made.found("frozen").items()
        ]
    late, partly = _late(made, limits.late)
    alarms += late
    alarms += _age(made, limits.model_age, now)
    return alarms, {name: str(why) for name, why in made.unknown.items()} | partly


def alarms_of_risk(found: "pipeline.Risk", limit: str | None) -> tuple[list[Alarm], list[str]]:
    """Return the alarms of books over their limit, and a sentence on each book."""
    alarms, lines = list[Alarm](), list[str]()
    for name, base in found.base.items():
        whole = found.first(name).iloc[0]
        text = (
            f"value at risk {whole['var']:,.2f} ({whole['var'] / base:.2%}) at {whole['level']:g} "
            f"%, sessions ahead: {whole['horizon']:.0f}"
        )
        if limit is not None:
            most = pipeline.Limit.parse(limit).money(base)
            over = bool(whole["var"] > most)
            text += f", {'over' if over else 'within'} the limit of {most:,.2f}"
            alarms += [Alarm(RISK, name, "", text)] if over else []
        lines.append(f"Book {name}: {text}")
    return alarms, lines


def _jumps(made: "pipeline.Prediction") -> Iterator[Alarm]:
    unadjusted = made.found("unadjusted")
    for name, one in unadjusted.items():
        text = (
            f"prices look unadjusted {one.said}. `forecaster adjust` lists the proposals and "
            "applies them"
        )
        yield Alarm(JUMPED, name, "", text)
    for name, one in made.found("jumped").items():
        if name not in unadjusted:
            yield Alarm(JUMPED, name, one.said, "jumped without a split or dividend")


def _late(made: "pipeline.Prediction", most: int | None) -> tuple[list[Alarm], dict[str, str]]:
    """Return alarms of series that lack sessions, and those that lack fewer than the limit."""
    behind, ended = made.found("behind"), made.found("ended")
    if most is None:
        return [], {name: one.said for name, one in behind.items()}
    lacking = {name: one for name, one in made.found("late").items() if name not in ended}
    late = [one for one in lacking.values() if one.rows > most]
    # All of them, too: their forecasts begin with a day that is over.
    partly = {name: one.said for name, one in lacking.items() if one.rows <= most}
    together = [one for one in late if one.name not in behind]
    alarms = [Alarm(LATE, one.name, "", one.said) for one in late if one.name in behind]
    if together:
        one = max(together, key=lambda one: one.rows)
        text = (
            f"{len(together)} of {len(made.panel.ids)} series; {one.name} {one.said}. "
            "Is the source brought up to date? late = false turns this alarm off"
        )
        alarms.append(Alarm(LATE, None, "", text))
    return alarms, partly


def _age(made: "pipeline.Prediction", most: int | None, now: datetime) -> Iterator[Alarm]:
    """Yield the alarm of a model that was fitted too long ago, or is dated later than now."""
    fitted = run_time(made.run)
    if most is None or fitted is None or made.simulated:
        return
    days = (now - fitted).days
    if -1 <= days <= most:  # the clocks of machines that share a home differ
        return
    when = f"{days} days ago" if days > 0 else f"later than now, on {fitted:%Y-%m-%d}"
    text = f"run {run_name(made.run)} was fitted {when}; fit again, or remove it (`runs remove`)"
    yield Alarm(MODEL, None, "", text)
