"""Tests of the commands about stored prices, as a user types them."""

import pandas as pd

from tests.cli.desk import Desk
from tests.conftest import prices, run


def test_status_shows_series_flags_and_what_to_look_at(tmp_path):
    table = pd.concat([prices(f"T{i}", 300) for i in range(30)])
    wrong = (table["ticker"] == "T7") & (table["date"] == "2020-06-01")
    table.loc[wrong, ["open", "high", "low", "close"]] *= 1.5
    desk = Desk(tmp_path)
    desk.ingest(table)
    shown = desk("status").stdout
    assert "reversed 1" in shown and "... and 10 more; --all shows them" in shown
    rows = [line for line in shown.splitlines() if line.startswith("│ T")]
    assert len(rows) == 20 and rows[0].startswith("│ T7 ")
    assert "T29" in desk("status", "--all").stdout.split()
    one = desk("status", "T3").stdout
    assert "T3" in one and "T7" not in one
    path = next(desk.home.prices.glob("*/T5.*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    said = desk("status", "--verify")
    assert said.exit_code == 1 and "29 of 30 files are sound" in said.stdout
    assert "T5" in said.stderr and "damaged" in said.stderr
    again = desk.ingest()
    assert again.exit_code == 0 and "T5: fetched again; the damaged file is in" in again.stderr
    assert "30 of 30 files are sound" in desk("status", "--verify").stdout


def test_a_jump_on_the_latest_day_is_forecast_from_with_a_warning(tmp_path, settings):
    table = prices("AAA", 400)
    table.loc[table.index[-1], ["open", "high", "low", "close"]] *= 0.42  # no split
    desk = Desk(tmp_path)
    desk.write(table)
    fitted = desk("fit", "--source", f"files:{desk.path}", "--config", settings)
    assert fitted.exit_code == 0 and "unconfirmed 1 " in fitted.stdout
    result = desk("predict", "AAA")
    assert f"last close {table['close'].iloc[-1]:.2f}" in result.stdout
    assert (
        "1 series jumped on the latest session, without a split or dividend: AAA (2021-07-13)"
        in result.stderr
    )


def test_a_fit_until_a_day_looks_at_no_later_one(tmp_path, monkeypatch):
    """A session copied from a later one counts as wrong only after the later one has come."""
    from forecaster.pipeline.blocks import reader_of_fit

    table = pd.concat([prices("AAA", 400), prices("BBB", 400)], ignore_index=True)
    columns = ["open", "high", "low", "close", "volume"]
    table.loc[390, columns] = table.loc[396, columns].to_numpy()
    desk, learned = Desk(tmp_path), {}
    desk.write(table)

    def fit(home, work, *rest):
        request = work.unfinished.request
        panel = reader_of_fit(work.store, request, work.masked).panel(request.ids)
        last = str(panel.times[-1])[:10]
        learned[request.end] = len(work.masked), int(panel.mask[0].sum()), last
        raise KeyboardInterrupt

    monkeypatch.setattr("forecaster.pipeline.fit_run._train_and_save", fit)
    before, since = table["date"][395], table["date"][396]
    for end in (before, since):
        desk("fit", "--source", f"files:{desk.path}", "--end", end)
    assert learned == {before: (0, 396, before), since: (1, 396, since)}


def test_status_names_what_is_not_there(home):
    result = run("status", "aapl", "nope", "--home", home)
    assert result.exit_code == 3 and "AAPL" in result.stdout
    assert "nope: not stored" in result.stderr


def test_a_share_class_is_found_however_it_is_written(tmp_path):
    """The file has ``BRK.B``; the command line spells it in three ways."""
    desk = Desk(tmp_path)
    assert desk.ingest(prices("BRK.B", 60)).exit_code == 0
    for number, name in enumerate(("BRK-B", "brk.b", "Brk.B")):
        shown = desk("status", name)
        assert shown.exit_code == 0 and "BRK.B" in shown.stdout and shown.stderr == ""
        path = tmp_path / f"{number}.csv"
        assert desk("export", name, "--output", path).exit_code == 0
        assert set(pd.read_csv(path)["unique_id"]) == {"BRK.B"}
    listed = desk.ingest(None, "--tickers", "brk.b,BRK-B")
    assert listed.exit_code == 0 and "Stored 1 series" in listed.stdout


def test_whole_numbers_are_sorted_as_numbers(tmp_path):
    rows = [("a", n) for n in range(9, 40)] + [("b", n) for n in range(100, 130)]
    table = pd.DataFrame(rows, columns=["unique_id", "ds"]).assign(y=lambda t: t["ds"] % 7)
    desk = Desk(tmp_path)
    assert desk.ingest(table, "--date-format", "steps").exit_code == 0
    (line,) = (x for x in desk("status").stdout.splitlines() if "p.csv" in x and "61" in x)
    cells = [cell.strip() for cell in line.split("│")]
    assert cells[4:6] == ["9", "129"]
