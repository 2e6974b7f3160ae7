"""Tests of tickers that a model was not fitted on, but whose prices are stored."""

from tests.conftest import error, run


def test_a_stored_ticker_is_forecast_by_the_network_of_all(tmp_path, settings):
    home = ("--home", tmp_path)
    source = ("--source", "simulated", "--start", "2022-01-01")
    fitted = run(
        "fit",
        *source,
        "--tickers",
        "AAPL,KO",
        "--config",
        settings,
        "--start-from",
        "pooled",
        *home,
    )
    assert fitted.exit_code == 0, fitted.stderr
    assert "not among the 2 series" in error("predict", "IBM", *home, code=1)
    assert run("ingest", "--source", "simulated", "--tickers", "IBM", *home).exit_code == 0
    done = run("predict", "ibm", "--format", "csv", *home)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("IBM,") == 3
    assert "1 series without a network of their own forecast by the one trained on all: IBM" in (
        done.stderr
    )
    both = run("predict", "AAPL", "IBM", "NONE", "--format", "csv", *home)
    assert both.exit_code == 3 and both.stdout.count("AAPL,") == 3
    assert "NONE: not among the 2 series" in both.stderr
