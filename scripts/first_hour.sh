#!/usr/bin/env bash
# An analyst's first hour, with its mistakes, on a fresh home: prints each command, its output, and
# whether it was as expected.
#
#   bash scripts/first_hour.sh [FOLDER [PARTS]]
#
# FOLDER, which must be new or empty, keeps the files; without it they are deleted at the end. PARTS
# is the number of parts of the hour, from the first on; without it, all nine. The settings are far
# too small to forecast anything well. PYTHON names the interpreter.

set -uo pipefail
export LC_ALL=C.UTF-8 COLUMNS=100
PYTHON=${PYTHON:-python}
commands=0
refusals=0
output=""

# --- checks --------------------------------------------------------------------------------------

deviation() {
    printf '\nNot as expected, after %s commands: %s\n' "$commands" "$1" >&2
    exit 1
}

# Runs a command of the program; leaves its output, from both streams, in $output.
run() { # CODE ARGS...
    local expected=$1 code=0
    shift
    commands=$((commands + 1))
    printf '\n$ forecaster %s\n' "$*"
    output=$("$PYTHON" -m forecaster "$@" 2>&1) || code=$?
    printf '%s\n' "$output"
    [[ $code == "$expected" ]] || deviation "exit code $code, expected $expected"
    [[ $output != *Traceback* ]] || deviation "a traceback"
    ! grep -Eq '[A-Za-z]+Warning:|^[EWI][0-9]{4} ' <<<"$output" || deviation "a library's message"
}

says() { # PHRASE...
    local phrase
    for phrase in "$@"; do
        [[ $output == *"$phrase"* ]] || deviation "it does not say: $phrase"
    done
}

never_says() { # PHRASE
    [[ $output != *"$1"* ]] || deviation "it says: $1"
}

files_here() { find . -path ./home -prune -o -type f -exec cksum {} + | sort; }

# Runs a command that must be refused with a message, without creating or changing a file.
refuses() { # CODE PHRASE ARGS...
    local code=$1 phrase=$2 before
    shift 2
    before=$(files_here)
    run "$code" "$@"
    says "$phrase"
    [[ $(files_here) == "$before" ]] || deviation "a refusal changed files"
    refusals=$((refusals + 1))
}

there() { # FILE...
    local file
    for file in "$@"; do
        [[ -s $file ]] || deviation "$file is missing or empty"
    done
}

holds() { # FILE PHRASE
    grep -qF -- "$2" "$1" || deviation "$1 does not hold: $2"
}

begins() { # FILE BYTES
    [[ $(head -c "${#2}" "$1" | tr '\0' ' ') == "$2" ]] || deviation "$1 does not begin with $2"
}

same() { # FILE FILE
    cmp -- "$1" "$2" || deviation "$1 and $2 differ"
}

narrow() { # WIDTH: tables keep to it, in letters and not in bytes
    "$PYTHON" -c '
import sys
lines = sys.stdin.read().splitlines()
long = [line for line in lines if line[:1] in set("┏┃┡│└") and len(line) > int(sys.argv[1])]
sys.exit(f"too wide: {long[0]}" if long else 0)' "$1" <<<"$output" || deviation "a table is cut"
    never_says "…"
}

python_finds() { # CODE: what must not raise, with pandas as pd
    "$PYTHON" -W ignore -c "import pandas as pd
$1" || deviation "python: $1"
}

installed() { "$PYTHON" -c "import $1" 2>/dev/null; }

# --- files of users ------------------------------------------------------------------------------

make_files() {
    "$PYTHON" - <<'PYTHON'
import numpy as np
import pandas as pd

prices = pd.read_csv("export.csv").query("ds >= '2024-01-01'")
prices = prices.rename(columns={"unique_id": "ticker", "ds": "date"})[["ticker", "date", "close"]]
prices["close"] = prices["close"].round(2)
prices.to_csv("newer.csv", index=False)
fridays = pd.to_datetime(prices["date"]).dt.day_of_week == 4
prices[fridays].to_csv("weekly.csv", index=False)
prices = prices[prices["date"] < "2025-12-15"]
prices.to_csv("prices.csv", index=False)
prices.set_axis(["unique_id", "ds", "y"], axis=1).to_csv("values.csv", index=False)
prices.pivot(index="date", columns="ticker", values="close").to_csv("wide.csv")

days = pd.to_datetime(prices["date"]).dt.strftime("%d.%m.%Y")
european = prices.assign(date=days)
european.to_csv("european.csv", sep=";", decimal=",", index=False)
european.set_axis(["Aktie", "Datum", "Kurs"], axis=1).to_csv(
    "kurse.csv", sep=";", decimal=",", index=False
)


def seasonal(file: str, season: int, times: pd.DatetimeIndex) -> None:
    random, steps = np.random.default_rng(season), np.arange(len(times))
    series = []
    for number, name in enumerate(["north", "south", "west"]):
        wave = np.sin(2 * np.pi * (steps + number) / season)
        y = 100 + 10 * wave + random.normal(0, 1, len(steps))
        series.append(pd.DataFrame({"unique_id": name, "ds": times, "y": y.round(2)}))
    short = series[0].head(20).assign(unique_id="new")
    pd.concat([*series, short]).to_csv(file, index=False)


seasonal("monthly.csv", 12, pd.date_range("2000-01-01", periods=300, freq="MS"))
hours = pd.date_range("2026-01-05", periods=24 * 31, freq="h")
seasonal("hourly.csv", 24, hours[: 24 * 30])
plans = pd.DataFrame({"ds": hours, "open": hours.hour.isin(range(9, 18)).astype(int)})
plans.to_csv("plans.csv", index=False)
plans.assign(open=0).to_csv("closed.csv", index=False)
plans.assign(ds=hours.strftime("%d/%m/%Y"))[:1].to_csv("unclear.csv", index=False)
PYTHON
    there prices.csv values.csv wide.csv european.csv kurse.csv monthly.csv hourly.csv
    printf 'ticker,group\nAAPL,Technology\nIBM,Technology\nKO,Drinks\nBRK-B,Insurance\n' >groups.csv
    printf 'ticker,group\nAAPL,Technology\nAAPL,Drinks\n' >twice.csv
    printf 'ticker,date,close\nAAPL,2024-01-02,185.64\nAAPL,2024-01-03,n.b.\n' >broken.csv
    printf 'epoch = 3\n' >typo.toml
    cat >small.toml <<'TOML'
hidden = 4
lookback = 30
burn_in = 10
epochs = 3
members = 1
learning_rate = 1e-2
start = "independent"
TOML
}

# --- the hour ------------------------------------------------------------------------------------

nothing_there_yet() {
    run 0 status
    says "Nothing stored yet" "No model yet"
    run 0 runs
    says "No run under"
    refuses 1 "run \`forecaster fit\` first" predict AAPL
    refuses 2 "no evaluation in" report
    refuses 2 "no unfinished fit" fit --resume
    refuses 2 "Did you mean 'ingest'?" ingets
}

prices_come_in() {
    run 0 ingest --source simulated --tickers AAPL,IBM,KO,BRK-B
    says "Stored 4 series from simulated"
    run 0 export --output export.csv
    says "rows to export.csv"
    holds export.csv "unique_id,ds,open,high,low,close"
    make_files
    refuses 2 "no such file or folder" ingest --source files:nowhere.csv
    refuses 1 "broken.csv, line 3, column 'close': 'n.b.' is not a number" \
        ingest --source files:broken.csv
    refuses 1 "--columns id=Aktie" ingest --source files:kurse.csv
    refuses 1 "--date-format %d.%m.%Y" \
        ingest --source files:kurse.csv --columns id=Aktie,time=Datum,target=Kurs
    run 0 ingest --source files:kurse.csv --columns id=Aktie,time=Datum,target=Kurs \
        --date-format %d.%m.%Y
    says "Stored 4 series"
    run 0 ingest --source files:european.csv --date-format %d.%m.%Y
    run 0 export --source files:european.csv --output european-back.csv
    python_finds '
there = pd.read_csv("prices.csv", index_col=["ticker", "date"])["close"].sort_index()
back = pd.read_csv("european-back.csv", index_col=["unique_id", "ds"])["close"].sort_index()
assert there.to_dict() == back.to_dict(), "closing prices"'
    refuses 2 "several sources are stored; add --source" export --output all.csv
}

models_are_fitted() {
    refuses 2 "no setting 'epoch'" fit --source files:prices.csv --config typo.toml
    refuses 2 "nowhere.toml: cannot be read: No such file" \
        fit --source files:prices.csv --config nowhere.toml
    run 0 fit --source files:prices.csv --config small.toml --run daily
    says "1 LSTM for each of 4 series" 'volatility of a month'
    never_says "Removed"
    never_says "worse than"
    refuses 2 "there is a run 'daily' already" fit --source files:prices.csv --run daily
    run 0 fit --source files:values.csv --config small.toml --run values
    never_says "worse than"
    run 0 fit --source files:wide.csv --columns wide --config small.toml --run wide
    run 0 fit --source files:monthly.csv --config small.toml --run monthly --horizon 12
    never_says "worse than"
    refuses 1 "say how: --date-format %m/%d/%Y or --date-format %d/%m/%Y" \
        fit --source files:hourly.csv --config small.toml --horizon 24 --future unclear.csv
    run 0 fit --source files:hourly.csv --config small.toml --run hourly --horizon 24 \
        --future plans.csv
    says "open (known ahead)"
    never_says "worse than"
    run 0 fit --source simulated --tickers AAPL,IBM,KO,BRK-B --config small.toml \
        --start 2024-01-01 --run pretend
    says "not real prices"
}

runs_are_told_apart() {
    run 0 runs
    says "Runs, the latest last" daily values wide monthly hourly pretend "predict --all\` takes hourly"
    run 0 runs compare daily pretend
    says "files:" "simulated" "of the 4 series that both have"
    COLUMNS=200 run 0 runs compare monthly hourly  # whatever the length of paths
    says "--future" plans.csv "known in advance"
    refuses 2 "no run 'dayly'" runs compare dayly pretend
    refuses 2 "there is a run 'wide' already" runs rename values wide
    run 0 runs rename pretend invented
    run 0 status
    says hourly.csv simulated invented
    run 3 status AAPL NOSUCH
    says "NOSUCH: not stored"
    COLUMNS=80 run 0 predict AAPL --run daily
    narrow 80
    COLUMNS=50 run 0 predict AAPL --run daily
    narrow 50
    COLUMNS=50 run 0 runs
    narrow 50
}

forecasts_are_made() {
    run 0 predict aapl brk.b --level 80
    says "AAPL   last" "BRK-B   last" "80 % band" "not taken (of simulated data" "invented"
    never_says "95 % band"
    run 0 predict north --output north.csv
    says "Run: hourly"
    holds north.csv "unique_id,ds,LSTM,LSTM-lo-80,LSTM-hi-80,LSTM-lo-95,LSTM-hi-95,"
    python_finds 'assert len(pd.read_csv("north.csv")) == 24, "a row per hour"'
    run 0 predict north --run hourly --future closed.csv
    never_says sessions
    refuses 2 "fitted without future covariates" predict AAPL --run daily --future plans.csv
    refuses 2 "says how to read files of covariates" predict north --date-format %d/%m/%Y
    run 0 predict north --run monthly --output months.csv
    python_finds '
months = pd.read_csv("months.csv", parse_dates=["ds"])
assert list(months["ds"]) == list(pd.date_range("2025-01-01", periods=12, freq="MS")), "months"
assert months["LSTM"].max() - months["LSTM"].min() > 10, "no season"'
    refuses 1 "NOSUCH: not among" predict NOSUCH
    run 3 predict AAPL NOSUCH --run daily
    says "AAPL   last close" "NOSUCH: not among the 4 series"
    refuses 2 "did you mean 80?" predict AAPL --level 0.8
    refuses 2 "1 or more, below 100" predict AAPL --level 120
    refuses 2 "name tickers, use --all" predict
    refuses 2 "needs --output" predict AAPL --format parquet
}

forecasts_are_written() {
    for layout in values wide; do
        run 0 predict --all --run "$layout" --output "$layout-forecast.csv"
    done
    same values-forecast.csv wide-forecast.csv
    run 0 predict --all --run daily --output f.csv
    refuses 2 "f.csv exists; choose another file, or add --overwrite" \
        predict --all --run daily --output f.csv
    run 0 predict --all --run daily --output f.csv --overwrite
    refuses 2 "there is no folder missing" predict AAPL --output missing/f.csv
    refuses 2 "expected .csv, .json, .parquet, .xlsx" predict AAPL --output f.doc
    run 0 predict --all --run daily --output f.json
    run 0 predict --all --run daily --output f.parquet --plot f.png
    says "Wrote f.parquet" "Drew"
    begins f.png $'\x89PNG'
    refuses 2 "f.png exists" predict AAPL --plot f.png
    python_finds '
frames = [pd.read_csv("f.csv", parse_dates=["ds"]), pd.read_parquet("f.parquet"),
          pd.read_json("f.json", convert_dates=["ds"])]
for frame in frames:
    assert len(frame) == 20, "four tickers, five days"
    assert (frame["ds"].dt.tz_localize(None) == frames[0]["ds"]).all(), "dates"
    assert (frame["LSTM-lo-95"] < frame["LSTM"]).all(), "bands"
    assert (frame["LSTM"] / frames[0]["LSTM"] - 1).abs().max() < 1e-9, "medians"'
    if installed xlsxwriter; then
        run 0 predict --all --run daily --output f.xlsx
        begins f.xlsx PK
    else
        refuses 2 "Excel needs XlsxWriter" predict --all --run daily --output f.xlsx
    fi
    run 0 predict --all --run daily --paths 200
    says "value at risk 95 %" "equal weights of 4"
    run 0 predict --all --run daily --paths 20 --output paths.parquet
    python_finds '
paths = pd.read_parquet("paths.parquet")
assert len(paths) == 4 * 20 * 5 and paths["sample_id"].nunique() == 20, "paths"'
    run 0 predict --all --run invented --output invented.csv
    says "Simulated prices"
    holds invented.csv ",simulated"
}

models_are_judged() {
    local baselines=naive,ewma
    if installed torch; then baselines+=,torch; fi
    refuses 2 "AAPL is in 'Drinks', but in 'Technology' on line 2" \
        evaluate --source files:prices.csv --groups twice.csv
    refuses 2 "no baseline 'nothing'" evaluate --source files:prices.csv --baselines nothing
    run 0 evaluate --source files:prices.csv --config small.toml --windows 20 --step 5 \
        --baselines "$baselines" --groups groups.csv --output judged
    says "Point forecasts:" "Bands: those of 80 %" "/judged/report.html"
    [[ $baselines != *torch ]] || says "PyTorch: the same networks"
    there judged/report.html judged/forecasts.parquet judged/scores.parquet judged/summary.json
    holds judged/groups.csv Technology
    begins judged/report.html "<!DOCTYPE html>"
    holds judged/report.html "BRK-B"
    [[ $(wc -c <judged/report.html) -lt 5000000 ]] || deviation "the report is over 5 MB"
    ! grep -Eq '(src|href)="(https?:)?//' judged/report.html || deviation "it loads from a network"
    refuses 2 "exists; choose another folder, or add --overwrite" \
        evaluate --source files:prices.csv --config small.toml --windows 20 --output judged
    run 0 report judged --groups groups.csv --output page.html
    there page.html
    refuses 2 "page.html exists" report judged --output page.html
    refuses 2 "holds no evaluation" report missing
}

time_goes_by() {
    run 0 scorecard
    says "0 have come" "\`forecaster ingest\` fetches what has come since"
    cp newer.csv prices.csv
    run 0 ingest --source files:prices.csv
    run 0 scorecard aapl brk.b --run daily --report card.html
    says "10 have come" "Bands of 80 % covered" "too few to judge by" "Wrote card.html"
    COLUMNS=80 run 0 scorecard --run daily
    narrow 80
    says "│ AAPL " "│ all "
    refuses 2 "no forecast of a run 'dayly'" scorecard --run dayly
    refuses 2 "card.html exists" scorecard --report card.html
    run 0 predict --all --run daily --report forecasts.html --groups groups.csv
    says "Wrote forecasts.html"
    begins forecasts.html "<!DOCTYPE html>"
    holds forecasts.html Technology
    refuses 2 "expected .html" predict --all --run daily --report forecasts.pdf
    cp weekly.csv prices.csv
    run 3 ingest --source files:prices.csv
    says "lacks 400 of the 501 stored rows" "--refresh"
    run 0 ingest --source files:prices.csv --refresh
    refuses 1 "its rows are 7 days apart, those that the model was fitted on 1 day" \
        predict AAPL --run daily
    cp newer.csv prices.csv
    run 0 ingest --source files:prices.csv
}

runs_are_removed() {
    run 0 runs remove invented hourly
    says "Removed invented"
    refuses 2 "no run 'hourly'" predict north --run hourly
    run 0 predict north
    refuses 2 "no unfinished fit" fit --resume
    refuses 2 "no unfinished fit 'daily'" fit --discard daily
    run 0 status --verify
    says "files are sound"
}

folder=${1:-}
if [[ -z $folder ]]; then
    folder=$(mktemp -d)
    trap 'rm -rf -- "$folder"' EXIT
else
    mkdir -p -- "$folder" || exit 1
    [[ -z $(ls -A -- "$folder") ]] || { printf '%s is not empty\n' "$folder" >&2; exit 1; }
fi
cd -- "$folder" || exit 1
export FORECASTER_HOME=$PWD/home

parts=(
    nothing_there_yet prices_come_in models_are_fitted runs_are_told_apart forecasts_are_made
    forecasts_are_written models_are_judged time_goes_by runs_are_removed
)
for part in "${parts[@]:0:${2:-9}}"; do "$part"; done

printf '\nAs expected: %s commands, %s of them refused as they must be, in %s s\n' \
    "$commands" "$refusals" "$SECONDS"
