"""Series from the user's own files, in common layouts."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning, Kind, Skipped, UsageError
from forecaster.ingest import open_source
from tests.conftest import prices, run
from tests.messages import refuses, warns


def both() -> pd.DataFrame:
    return pd.concat([prices("AAA", 50), prices("BRK.B", 40)])


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder", "csv.gz"])
def test_all_kinds_of_files_give_the_same_panel(tmp_path, kind):
    if kind == "folder":
        path = tmp_path / "folder"
        path.mkdir()
        prices("AAA", 50).drop(columns="ticker").to_csv(path / "AAA.csv", index=False)
        prices("BRK.B", 40).to_parquet(path / "other.parquet")
        (path / "notes.md").write_text("not data")
    else:
        path = tmp_path / f"prices.{kind}"
        both().to_parquet(path) if kind == "parquet" else both().to_csv(path, index=False)
    panel = fc.load_panel(f"files:{path}")
    assert panel.ids == ("AAA", "BRK.B") and panel.target == "close"
    assert panel.mask.sum(1).tolist() == [50, 40]
    np.testing.assert_allclose(panel.channel("close")[0], prices("AAA", 50)["close"])
    assert fc.load_panel(f"files:{path}", ["BRK-B"]).ids == ("BRK-B",)


def lines(table: pd.DataFrame) -> str:
    return table.to_csv(index=False)


PRICES = lines(prices())
ROWS = "".join(f"2024-01-{day:02},{day}\n" for day in range(1, 31))


@pytest.mark.parametrize(
    "text",
    [
        lines(prices().drop(columns="close")),
        lines(prices().drop(columns=["date"])),
        lines(prices().assign(close="n/a?")),
        PRICES.replace("2020-01-08", "soon"),
        PRICES.replace("AAA,2020-01-06", ",2020-01-06"),
        lines(prices().assign(Close=1)),
        "",
        "ticker,date,close\n",
        "date,close,volume\n2024-01-02,1,234.50,1000\n",
        "date,close,close\n2024-01-02,1,2\n",
        "ticker,date,close\nA\x1bB,2024-01-02,1\n",
        "ds" + "," * 20_000 + "\n1",
        "# note\n\ndate,close\n\n2024-01-02,ten\n",
        "Date,Close\n20240102,1\n20240230,1\n",
        "a,b\n1,2,3\n4,5,6,7\n",
        f"date,close\n{ROWS}2024-01-31,1\x002\n",
        "date,close\n2024-01-02,1\n".encode("utf-16-le"),
        f"date,close\n{ROWS}".encode() + b"\xe9",
    ],
)
def test_bad_csvs_are_named_with_line_and_column(tmp_path, text):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refuses(DataError) as error:
        fc.load_panel(f"files:{path}")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("home", ["a/home", "."])
def test_a_home_in_the_folder_of_the_data_is_none_of_them(tmp_path, home):
    prices("AAA", 60).to_csv(tmp_path / "AAA.csv", index=False)
    stored = run("ingest", "--source", f"files:{tmp_path}", "--home", tmp_path / home)
    assert stored.exit_code == 0, stored.output
    panel = fc.load_panel(f"files:{tmp_path}")
    assert panel.ids == ("AAA",) and not panel.skipped


def test_one_bad_file_of_a_folder_is_skipped_by_name(tmp_path):
    prices("GOOD").to_csv(tmp_path / "GOOD.csv", index=False)
    (tmp_path / "BAD.csv").write_text("date,close\n2024-01-02,ten\n")
    prices("GOOD").to_csv(tmp_path / "x.csv", index=False)
    prices("FINE").to_csv(tmp_path / "FINE.csv", index=False)
    panel = fc.load_panel(f"files:{tmp_path}")
    assert panel.ids == ("FINE",)
    assert "line 2, column 'close': 'ten' is not a number" in str(panel.skipped["BAD"])
    assert "more than one row for 2020-01-01" in str(panel.skipped["GOOD"])


def test_missing_tickers_and_paths_are_named(tmp_path):
    prices().to_csv(tmp_path / "p.csv", index=False)
    panel = fc.load_panel(f"files:{tmp_path / 'p.csv'}", ["AAA", "ZZZ"])
    assert panel.skipped == {"ZZZ": Skipped(Kind.NOT_LOADED, detail=f"not in {tmp_path / 'p.csv'}")}
    with refuses(UsageError):
        open_source("files:nowhere.csv")
    with refuses(UsageError):
        open_source("bloomberg")
    (tmp_path / "empty").mkdir()
    with refuses(DataError):
        fc.load_panel(f"files:{tmp_path / 'empty'}")


def test_names_stay_as_they_are_written(tmp_path):
    """Keep leading zeros, NA as a ticker, and dots in file names; ignore hidden files."""
    table = pd.concat([prices("0005", 20), prices("NA", 20)])
    table.to_csv(tmp_path / "p.csv", index=False)
    assert set(fc.load_panel(f"files:{tmp_path / 'p.csv'}").ids) == {"0005", "NA"}
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("BRK.A", "BRK.B", "SHELL.AS", "._BRK.A"):
        prices(name, 20).drop(columns="ticker").to_csv(folder / f"{name}.csv", index=False)
    (folder / "README.txt").write_text("where it came from")
    panel = fc.load_panel(f"files:{folder}")
    assert panel.ids == ("BRK.A", "BRK.B", "SHELL.AS") and not panel.skipped


MONTH, DAY = "%m/%d/%Y", "%d/%m/%Y"


@pytest.mark.parametrize(
    ("dates", "forms"),
    [
        (["01/02/2024", "01/31/2024"], [MONTH]),
        (["02/01/2024", "31/01/2024"], [DAY]),
        # Sorted only with the day first; without weekends only with the month first. Files that
        # are not sorted, and series with weekends, look the same.
        (["08/01/2024", "10/01/2024", "01/02/2024"], [MONTH, DAY]),
        (["01/02/2024", "01/03/2024", "01/09/2024"], [MONTH, DAY]),
        (["03-04-2024", "03-05-2024"], ["%m-%d-%Y", "%d-%m-%Y"]),
    ],
)
def test_every_order_of_month_and_day_that_reads_all_dates_is_named(tmp_path, dates, forms):
    table = pd.DataFrame({"Date": dates, "Close": range(1, len(dates) + 1)})
    table.to_csv(tmp_path / "AAA.csv", index=False)
    with refuses(DataError) as error:
        open_source(f"files:{tmp_path / 'AAA.csv'}").tickers()
    assert " or ".join(f"--date-format {form}" for form in forms) in str(error.value)


@pytest.mark.parametrize(
    ("encoding", "first"), [("utf-8-sig", '"sep=;"\r\n'), ("utf-8", "\n# prices\nSEP=;\n")]
)
def test_what_spreadsheets_write(tmp_path, encoding, first):
    text = f"{first}Date;Société;Close\n2024-01-02;a,b,c,d;1,5\n2024-01-03;é;2,25\n"
    with (tmp_path / "AAA.csv").open("w", encoding=encoding, newline="") as file:
        file.write(text)
    (item,) = open_source(f"files:{tmp_path / 'AAA.csv'}").fetch(["AAA"])
    assert item.frame is not None and item.frame["close"].tolist() == [1.5, 2.25]
    with (tmp_path / "AAA.csv").open("w", encoding=encoding, newline="") as file:
        file.write(text.replace("2024-01-03", "soon"))
    with refuses(DataError):
        open_source(f"files:{tmp_path / 'AAA.csv'}").tickers()


def test_packed_files(tmp_path):
    path = tmp_path / "prices.csv.gz"
    both().to_csv(path, index=False)
    assert set(open_source(f"files:{path}").tickers()) == {"AAA", "BRK.B"}
    path.write_bytes(path.read_bytes()[:-300])
    both().to_csv(tmp_path / "prices.zip", index=False)
    for name in ("prices.csv.gz", "prices.zip"):
        with refuses(DataError):
            open_source(f"files:{tmp_path / name}").tickers()


@pytest.mark.parametrize(
    ("row", "count", "most"),
    [("A,1,0\n", 2_800_000, "8,000,000 cells"), ("0" * 1000, 140_000, "134,217,728 characters")],
)
def test_a_packed_file_that_swells_is_refused_before_it_does(row, count, most, tmp_path):
    path = tmp_path / "p.csv.gz"
    path.write_bytes(gzip.compress(f"unique_id,ds,y\n{row * count}".encode()))
    before = peak()
    with refuses(DataError):
        open_source(f"files:{path}").tickers()
    assert peak() - before < 100_000  # KiB


def peak() -> int:
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cell", ["", "NA"])
@pytest.mark.parametrize("header", ["ticker,date,close", "date,close,ticker"])
def test_a_comma_at_the_end_of_each_line_says_nothing(tmp_path, header, cell):
    """pandas would warn the user of a loss of data, and a name is not empty as a number is."""
    values = {"ticker": "AAA", "date": "2024-01-02", "close": "1.5"}
    row = ",".join(values[name] for name in header.split(","))
    (tmp_path / "p.csv").write_text(f"{header}\n{row},{cell if header[0] == 't' else ''}\n")
    (item,) = open_source(f"files:{tmp_path / 'p.csv'}").fetch(["AAA"])
    assert item.frame is not None and item.frame["close"].tolist() == [1.5]


def test_of_a_folder_every_file_is_read_or_named(tmp_path):
    plain = prices("AAA", 30).drop(columns="ticker")
    plain.to_csv(tmp_path / "AAA.csv", index=False)
    plain.to_csv(tmp_path / "BBB.tsv", index=False, sep="\t")
    plain.to_csv(tmp_path / "GZ.csv.gz", index=False)
    for other in ("old.zip", "sheet.xlsx", "notes.txt", "README.md", "readme.txt"):
        (tmp_path / other).write_text("no table")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere")
    with warns(ForecasterWarning):
        panel = fc.load_panel(f"files:{tmp_path}")
    assert panel.ids == ("AAA", "BBB", "GZ")
    assert set(panel.skipped) == {"link"} and "No such file" in str(panel.skipped["link"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_pipe_in_a_folder_is_named_not_waited_for(tmp_path):
    prices("AAA", 30).to_csv(tmp_path / "AAA.csv", index=False)
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.txt")
    panel = fc.load_panel(f"files:{tmp_path}")
    assert "not a plain file" in str(panel.skipped["pipe"])


def test_a_ticker_that_may_be_two_series_is_refused(tmp_path):
    path = tmp_path / "p.csv"
    pd.concat([prices("A", 40), prices("a", 40), prices("B", 40)]).to_csv(path, index=False)
    said = ("ingest", "--home", tmp_path, "--source", f"files:{path}", "--tickers")
    failed = run(*said, "a")
    assert failed.exit_code == 2 and "'A' may be any of 'A', 'a' in files:" in failed.stderr
    assert "Stored 1 series" in run(*said, "b").output
    assert "Stored 3 series" in run(*said[:-1]).output


@pytest.mark.parametrize("column", ["unique_id", "ds"])
def test_bytes_are_read_as_text_and_refused_in_one_line_if_they_are_none(tmp_path, column):
    days = [day.encode() for day in pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")]
    columns = {"unique_id": [b"a"] * 60, "ds": days, "y": [1.5] * 60}
    path = tmp_path / "bytes.parquet"
    pq.write_table(pa.table(columns), path)
    assert open_source(f"files:{path}").tickers() == ["a"]
    pq.write_table(pa.table(columns | {column: [b"\xff"] * 60}), path)
    with refuses(DataError):
        open_source(f"files:{path}").tickers()


def test_a_footer_that_ends_pyarrows_process_does_not_end_ours(tmp_path):
    """Of a column that has become required, pyarrow's metadata abort."""
    days = np.arange(3).astype("datetime64[D]")
    table = pa.table({"unique_id": ["a"] * 3, "ds": days, "y": [1.0, 2.0, None]})
    pq.write_table(table, tmp_path / "forged.parquet")
    raw = (tmp_path / "forged.parquet").read_bytes()
    optional, required = b"\x25\x02\x18\x01y", b"\x25\x00\x18\x01y"
    assert raw.count(optional) == 1
    (tmp_path / "forged.parquet").write_bytes(raw.replace(optional, required))
    code = "import sys, forecaster as fc; fc.load_panel(f'files:{sys.argv[1]}')"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "forged.parquet"],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and "DataError" in done.stderr, done.stderr
