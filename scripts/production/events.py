"""The events of a year in production: each changes a morning, and says what the result must be."""

import shutil
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
from production.year import Expected, Morning, Year, as_process, command_of, succeed

from forecaster.record import read_record
from forecaster.storage import unfinished_fits

Event = Callable[[Year, int], Morning]


def _cut(year: Year, session: int) -> Morning:
    """Write a file with only the latest day."""
    table = year.market.table(session)
    day = year.market.days[session].strftime("%Y-%m-%d")
    names = year.all_names(session)
    alarms = {("shrunk", name) for name in names}
    return Morning(table[table["date"] == day], Expected(4, alarms, forecast=names), True)


def _torn(year: Year, session: int) -> Morning:
    """Write a file that ends within a line."""
    text = year.market.table(session).to_csv(index=False)
    return Morning(text[: len(text) * 2 // 3], Expected(1, failed="ingest"), True)


def _empty(year: Year, session: int) -> Morning:
    """Write a file with only a heading."""
    text = year.market.table(session).head(0).to_csv(index=False)
    return Morning(text, Expected(1, failed="ingest"), True)


def _half(year: Year, session: int) -> Morning:
    """Write a file with every other ticker."""
    table, names = year.market.table(session), year.all_names(session)
    gone = set(sorted(names)[::2])
    alarms = {("changed", name) for name in gone}
    return Morning(table[~table["ticker"].isin(gone)], Expected(4, alarms, forecast=names), True)


def _late(year: Year, session: int) -> Morning:
    """Leave out the latest day of one ticker."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    table = table[~(latest & (table["ticker"] == name))]
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _blank(year: Year, session: int) -> Morning:
    """Leave out the close of one ticker on the latest day."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    table.loc[latest & (table["ticker"] == name), "close"] = np.nan
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _future(year: Year, session: int) -> Morning:
    """Add a row of one ticker that is dated years ahead."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    row = table[table["ticker"] == name].tail(1).assign(date="2190-01-04")
    table = pd.concat([table, row])
    return Morning(table, Expected(3, partly={name}, forecast=year.all_names(session)), True)


def _repeated(year: Year, session: int) -> Morning:
    """Read the same file again; nothing changes."""
    year.write(year.market.table(session))
    year.check(year.command(*year.daily), Expected(forecast=year.all_names(session)), session, "")
    forecasts, files = (year.folder / "forecasts.csv").read_bytes(), set(year.home.recorded())

    def unchanged() -> None:
        assert (year.folder / "forecasts.csv").read_bytes() == forecasts
        assert set(year.home.recorded()) == files

    return Morning(None, Expected(forecast=year.all_names(session)), after=unchanged)


def _frozen(year: Year, session: int) -> Morning:
    """Repeat the close of one ticker for six sessions, until the true ones come."""
    number, table = year.choose(session), year.market.table(session)
    name = year.market.names[number]
    rows = (table["ticker"] == name) & (
        table["date"] >= year.market.days[session - 5].strftime("%Y-%m-%d")
    )
    for column in ("open", "high", "low", "close"):
        table.loc[rows, column] = table.loc[rows, column].iloc[0]
    day = year.market.days[session - 5].strftime("%Y-%m-%d")

    def predict() -> None:
        done = year.command("predict", name, "--run", year.summary()["run"])
        assert f"the same since the day in brackets: {name} ({day})" in done.output, done.output

    alarms = {("frozen", name)}
    return Morning(
        table, Expected(4, alarms, forecast=year.all_names(session)), True, after=predict
    )


def _bad_tick(year: Year, session: int) -> Morning:
    """Show one price nearly twice as high, and correct it later."""
    name, table = year.market.names[year.choose(session)], year.market.table(session)
    latest = table["date"] == year.market.days[session].strftime("%Y-%m-%d")
    for column in ("open", "high", "low", "close"):
        table.loc[latest & (table["ticker"] == name), column] *= 1.83
    alarms = {("jumped", name)}
    return Morning(table, Expected(4, alarms, forecast=year.all_names(session)), True)


def _revised(year: Year, session: int) -> Morning:
    """Revise earlier rows of one ticker by a tenth of a percent."""
    year.market.shown[session - 20 : session - 10, year.choose(session)] *= 1.001
    return Morning(year.market.table(session), Expected(forecast=year.all_names(session)))


def _restated_split(year: Year, session: int) -> Morning:
    """Split one ticker; the source restates all of its rows."""
    year.market.shown[:, year.choose(session)] /= 2
    return Morning(year.market.table(session), Expected(forecast=year.all_names(session)))


def _split(year: Year, session: int) -> Morning:
    """Split one ticker; the source restates nothing, and the user adjusts it."""
    number = year.choose(session)
    name = year.market.names[number]
    year.market.shown[session:, number] /= 4
    alarms = {("jumped", name)}
    return Morning(
        year.market.table(session), Expected(4, alarms, forecast=year.all_names(session)), True,
        after=lambda: succeed(year.stored("adjust", name)),
    )  # fmt: skip


def _currency(year: Year, session: int) -> Morning:
    """Change the currency of all prices; the user adjusts them."""
    year.market.shown[session:] *= 0.73
    alarms = {("jumped", name) for name in year.all_names(session)}
    return Morning(
        year.market.table(session), Expected(4, alarms, forecast=year.all_names(session)), True,
        after=lambda: succeed(year.stored("adjust", "--all")),
    )  # fmt: skip


def _listing(year: Year, session: int) -> Morning:
    """List a new ticker with eight rows."""
    close = year.market.close[:, year.choose(session)] * 0.7
    name = f"N{len(year.market.names)}"
    year.market.add(name, close, session - 7)
    names = year.all_names(session)
    return Morning(year.market.table(session), Expected(4, {("changed", name)}, forecast=names))


def _delisting(year: Year, session: int) -> Morning:
    """Remove a ticker from the source; the user retires it."""
    number = year.choose(session)
    name, names = year.market.names[number], year.all_names(session)
    year.market.gone.add(number)

    def retire() -> None:
        succeed(year.stored("tickers", "retire", name))
        year.retired.add(name)

    expected = Expected(4, {("changed", name)}, forecast=names)
    return Morning(year.market.table(session), expected, after=retire)


def _renaming(year: Year, session: int) -> Morning:
    """Give a ticker another name from this session on; the user renames it."""
    number = year.choose(session)
    old, market, names = year.market.names[number], year.market, year.all_names(session)
    new = f"R{session}"
    market.names[number], year.rows = new, {k: v for k, v in year.rows.items() if k != old}
    alarms = {("changed", old), ("changed", new)}
    return Morning(
        market.table(session), Expected(4, alarms, forecast={*names, new}), True,
        after=lambda: _renamed(year, old, new),
    )  # fmt: skip


def _renamed(year: Year, old: str, new: str) -> None:
    succeed(year.stored("tickers", "rename", old, new))
    year.rows.pop(old, None)


def _rolled_back(year: Year, session: int) -> Morning:
    """Write a file that ends two hundred sessions ago, at the end of a line."""
    before = year.market.table(session - 200)
    there, names = set(before["ticker"]), year.all_names(session)
    alarms = {("shrunk" if name in there else "changed", name) for name in names}
    return Morning(before, Expected(4, alarms, forecast=names), True)


def _shortened(year: Year, session: int) -> Morning:
    """Let the source keep fewer sessions from now on; the user says that it is meant."""
    market, names = year.market, year.all_names(session)
    first = 60
    alarms = {("shrunk", market.names[n]) for n in market.listed(session)
              if market.first[n] < first and market.names[n] in names}  # fmt: skip
    market.first = [max(first, old) for old in market.first]

    def refresh() -> None:
        succeed(year.command("ingest", "--source", year.source, "--refresh"))
        year.rows = {}

    return Morning(market.table(session), Expected(4, alarms, forecast=names), True, after=refresh)


def _stale(year: Year, session: int) -> Morning:
    """Let the file be that of the session before; forecasts begin with a day that is over.

    A ticker has to be listed for some holidays before it is known to keep them.
    """
    names = year.all_names(session)
    partly = names & year.market.known_calendars(session) if year.clock else set()
    expected = Expected(3 if partly else 0, partly=partly, forecast=names, behind=True)
    return Morning(year.market.table(session - 1), expected, True)


def _ended(year: Year, session: int) -> Morning:
    """Let a ticker's rows end, and another be late beside it; the user retires the first."""
    number = year.choose(session)
    market, names = year.market, year.all_names(session)
    name, other = market.names[number], market.names[year.choose(session, number)]
    market.last[number] = session
    table = market.table(session)
    latest = table["date"] == market.days[session].strftime("%Y-%m-%d")

    def retire() -> None:
        year.write(market.table(session))
        one = Expected(3, partly={name}, forecast=names)
        year.check_again(session, "the other is there", one)
        succeed(year.stored("tickers", "retire", name))
        year.retired.add(name)

    expected = Expected(3, partly={name, other}, forecast=names)
    table = table[~(latest & (table["ticker"] == other))]
    return Morning(table, expected, True, after=retire)


def _special_dividend(year: Year, session: int) -> Morning:
    """Pay out two fifths of a price; the source restates nothing, the user neither."""
    number = year.choose(session)
    name = year.market.names[number]
    year.market.shown[session:, number] *= 0.585
    alarms = {("jumped", name)}
    return Morning(
        year.market.table(session), Expected(4, alarms, forecast=year.all_names(session))
    )


def _restated_dividend(year: Year, session: int) -> Morning:
    """Pay a dividend of 4 percent; the source restates all earlier rows."""
    year.market.shown[:session, year.choose(session)] *= 0.96
    return year.plain(session)


def _corrected_later(year: Year, session: int) -> Morning:
    """Show one price nearly twice as high, and correct it in the file of the next session."""
    return _bad_tick(year, session)._replace(repaired=False)


def _carried_holiday(year: Year, session: int) -> Morning:
    """Repeat the prices of the session before a holiday on that day, in all files from now on."""
    year.market.carried.append(year.market.holiday_before(session))
    return year.plain(session)


def _carried_session(year: Year, session: int) -> Morning:
    """Repeat the prices of the session before on this one, until the true ones come."""
    day, before = (year.market.days[s].strftime("%Y-%m-%d") for s in (session, session - 1))
    table = year.market.table(session - 1)
    copied = table[table["date"] == before].assign(date=day, volume=0)
    names = year.all_names(session)
    partly = names & year.market.known_calendars(session) if year.clock else names
    return Morning(
        pd.concat([table, copied]), Expected(3, partly=partly, forecast=names, behind=True), True
    )


def _another_level(year: Year, session: int) -> Morning:
    """Ask for bands of a further level after the forecast of the day."""

    def ask() -> None:
        year.watch(80, 90, 95)
        year.check_again(session, "with another level")
        (record,) = read_record(year.home).frames.values()
        made = record[(record["origin"] == year.market.days[session]) & ~record["made_after"]]
        made = made[made["run"] == year.home.runs()[-1].name]
        assert made.filter(like="-90").notna().all(axis=None)
        assert set(made["unique_id"]) == year.all_names(session)
        year.watch(80, 95)

    return year.plain(session)._replace(after=ask)


def _dated_name(year: Year, session: int) -> Morning:
    """Let the source be a file with a date in its name, which no model is of."""
    day = year.market.days[session].strftime("%Y-%m-%d")

    def watch_it() -> None:
        path = year.folder / f"prices-{day}.csv"
        year.market.table(session).to_csv(path, index=False)
        text = (year.folder / "daily.toml").read_text().replace("prices.csv", path.name)
        text = text.replace("forecasts.csv", "dated.csv").replace("summary.json", "dated.json")
        watch = year.folder / "dated.toml"
        watch.write_text(text)
        done = year.command("daily", str(watch), "--quiet")
        assert done.code == 1 and not (year.folder / "dated.csv").exists(), done
        path.unlink()

    return year.plain(session)._replace(after=watch_it)


def _refitted(year: Year, session: int) -> Morning:
    """Fit again, on the rows until a month ago; forecasts are of tomorrow all the same."""
    until = year.market.days[session - 21].strftime("%Y-%m-%d")
    year.fit(session, "--end", until)
    run = year.home.runs()[-1].name
    return year.plain(session)._replace(after=lambda: _forecast_by(year, run))


def _updated(year: Year, session: int) -> Morning:
    """Let the networks learn from the new rows."""
    succeed(year.command("fit", "--update"))
    year.fitted = year.market.days[session]
    run = year.home.runs()[-1].name
    return year.plain(session)._replace(after=lambda: _forecast_by(year, run))


def _forecast_by(year: Year, run: str) -> None:
    (record,) = read_record(year.home).frames.values()
    assert record["run"].iloc[-1] == run, (record["run"].iloc[-1], run)


# The functions at which fits are killed, in turn: before there is any progress; when the networks
# are trained and their progress is stored; when the run is saved.
_KILLED_FITS = "train_shards", "save_shards", "predict"


def _killed_fit(year: Year, session: int) -> Morning:
    """Kill a fit; the next one of the same name, after new rows, is not refused."""
    name = f"weekly-{session}"
    year.write(year.market.table(session - 1))
    config = str(year.folder / "settings.toml")
    words = year.words("fit", "--source", year.source, "--config", config, "--run", name)
    killed = sum(row["event"] == "killed fit" for row in year.log)
    function = _KILLED_FITS[killed % len(_KILLED_FITS)]
    _kill_at(year, words, f"forecaster.pipeline.fit_run:{function}")
    left = [] if function == "predict" else unfinished_fits(year.home)
    if left:
        assert ("kept at" in left[0].progress) == (function == "save_shards"), left
    else:
        assert function == "predict", function
        year.fitted = year.market.days[session - 1]

    def fit_again() -> None:
        if left:
            resumed = year.command("fit", "--resume", left[0].name)
            assert resumed.code == 1 and "data have changed" in resumed.output, resumed
            year.fit_all("--run", name)
            year.fitted = year.market.days[session]
        assert not unfinished_fits(year.home)
        year.check_again(session, "after a fit that was killed")
        _forecast_by(year, year.home.runs()[-1].name)

    return year.plain(session)._replace(after=fit_again)


def _damaged_run(year: Year, session: int) -> Morning:
    """Cut a file of the latest run; it is named, and the run to take instead."""
    sound = year.home.runs()[-1]
    latest = (year.now or datetime.now(UTC)) - timedelta(seconds=1)
    damaged = sound.with_name(f"{latest:%Y%m%d-%H%M%S}-000.damaged")

    def damage() -> None:
        shutil.copytree(sound, damaged)
        arrays = damaged / "model.safetensors"
        arrays.write_bytes(arrays.read_bytes()[:-5])

    def remove() -> None:
        assert "--run " in year.summary()["error"], year.summary()
        shutil.rmtree(damaged)

    expected = Expected(1, failed="predict")
    return Morning(year.market.table(session), expected, True, before=damage, after=remove)


def _pruned(year: Year, session: int) -> Morning:
    """Remove what is no longer needed."""
    stores = len(year.home.stores())

    def prune() -> None:
        succeed(year.command("prune", "--runs", "2", "--yes"))
        assert len(year.home.stores()) <= stores
        year.check_again(session, "after pruning")

    return year.plain(session)._replace(after=prune)


def _killed(year: Year, session: int) -> Morning:
    """Kill the run at five random moments, and run it again."""
    year.write(year.market.table(session))
    lasts = year.daily_seconds[0]  # on this machine, in the session before
    for _ in range(5):
        _kill_after(year, year.words(*year.daily), year.random.uniform(0.05, 1) * lasts)
    return year.plain(session)


def _kill_after(year: Year, words: tuple[str, ...], seconds: float) -> None:
    """Run a command, and kill it after some seconds, unless it has ended."""
    process = subprocess.Popen(command_of(words, year.now), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.wait()


def _kill_at(year: Year, words: tuple[str, ...], place: str) -> None:
    """Run a command, and kill it when it calls a function; see ``clock.py``."""
    done = as_process(*words, now=year.now, killed_at=place)
    assert done.code == -signal.SIGKILL, f"ended with {done.code} before {place}: {done.output}"


def _killed_before_review(year: Year, session: int) -> Morning:
    """Kill the run when the rows are stored and not yet reviewed, with a bad price among them."""
    morning = _bad_tick(year, session)
    year.write(morning.table if morning.table is not None else "")
    _kill_at(year, year.words(*year.daily), "forecaster.ingest.refreshing:_review_if_changed")
    return morning


def _two(year: Year, session: int) -> Morning:
    """Begin two runs at once."""
    year.write(year.market.table(session))
    command = command_of(year.words(*year.daily), year.now)
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    # 4: bands of a ticker may have stopped covering, or the model is old
    assert all(one.wait() in (0, 4) for one in both)
    return year.plain(session)


def _full_disk(year: Year, session: int) -> Morning:
    """Let no file of more than some bytes be written, as on a full disk."""
    year.write(year.market.table(session))
    limit = year.random.choice([200, 3000, 8000])
    done = as_process(*year.words(*year.daily), now=year.now, limit=limit)
    assert done.code == 1 and "cannot be" in done.output, (limit, done)
    return year.plain(session)


def _clock_back(year: Year, session: int) -> Morning:
    """Set the clock back by hours or a year, then to what it must be."""
    year.set_clock(session, -year.random.choice([timedelta(hours=1), timedelta(days=366)]))
    return year.plain(session)._replace(after=lambda: year.set_clock(session), repaired=True)


def _clock_back_by_days(year: Year, session: int) -> Morning:
    """Set the clock back by six days, so that new rows seem to be of the future; then forward."""
    year.set_clock(session, -timedelta(days=6))
    names = year.all_names(session)
    return Morning(
        year.market.table(session), Expected(3, partly=names, forecast=names), True,
        after=lambda: year.set_clock(session),
    )  # fmt: skip


def _clock_ahead(year: Year, session: int) -> Morning:
    """Set the clock ahead by eight days: all is late; then to what it must be."""
    year.set_clock(session, timedelta(days=8))
    expected = Expected(4, {("late", None)}, forecast=year.all_names(session), behind=True)
    return Morning(
        year.market.table(session), expected, True, after=lambda: year.set_clock(session)
    )


EVENTS: dict[str, Event] = {
    "cut": _cut, "torn": _torn, "empty": _empty, "half": _half, "rolled back": _rolled_back,
    "shortened": _shortened, "stale": _stale, "late": _late, "ended": _ended, "blank": _blank,
    "future": _future, "repeated": _repeated, "frozen": _frozen, "bad tick": _bad_tick,
    "corrected later": _corrected_later, "revised": _revised, "restated split": _restated_split,
    "split": _split, "currency": _currency, "special dividend": _special_dividend,
    "restated dividend": _restated_dividend, "carried holiday": _carried_holiday,
    "carried session": _carried_session, "another level": _another_level,
    "dated name": _dated_name, "refitted": _refitted, "updated": _updated,
    "damaged run": _damaged_run, "pruned": _pruned, "listing": _listing,
    "delisting": _delisting, "renaming": _renaming,
}  # fmt: skip
IN_PROCESSES: dict[str, Event] = {
    "killed": _killed, "killed before the review": _killed_before_review,
    "killed fit": _killed_fit, "two at once": _two, "full disk": _full_disk,
    "clock back": _clock_back, "clock back by days": _clock_back_by_days,
    "clock ahead": _clock_ahead,
}  # fmt: skip
"""Events that need processes of their own, or another clock."""
EVENTS |= IN_PROCESSES
ONCE = {"currency", "shortened", "carried holiday"}
"""Events that occur once a year."""
