"""Tests of a fit that is interrupted and resumed."""

from tests.conftest import error, prices, run


def test_an_interruption_exits_with_130(monkeypatch, tmp_path):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("forecaster.pipeline.fit_to_home", interrupt)
    message = error("fit", "--source", "simulated", "--home", tmp_path, code=130)
    assert "Interrupted" in message


def test_an_interrupted_fit_is_gone_on_with(monkeypatch, tmp_path, settings):
    """After Ctrl-C in the second block (exit 130), --resume ends with the bits of a whole fit."""
    from forecaster.swarm.execution.schedule import Schedule

    (tmp_path / "t.txt").write_text("AAPL\nKO\nXOM")
    arguments = (
        "fit", "--tickers", tmp_path / "t.txt", "--source", "simulated", "--start", "2023-01-01",
        "--config", settings, "--epochs", 15,
    )  # fmt: skip
    assert run(*arguments, "--home", tmp_path / "whole").exit_code == 0
    whole = run("predict", "--all", "--format", "csv", "--home", tmp_path / "whole").stdout

    advance = Schedule.advance

    def interrupted(self):
        if self.state.epoch.max() >= 5:
            raise KeyboardInterrupt
        advance(self)

    home = tmp_path / "home"
    with monkeypatch.context() as patch:
        patch.setattr(Schedule, "advance", interrupted)
        message = error(*arguments, "--run", "mine", "--home", home, code=130)
        assert "Continue with `forecaster fit --resume`" in message
        taken = error(*arguments, "--run", "mine", "--home", home, code=2)
        assert "there is an unfinished fit 'mine' already" in taken
    assert not (home / "models").exists()
    assert "leave out --horizon" in error("fit", "--resume", "--horizon", 9, "--home", home, code=2)
    resumed = run("fit", "--resume", "mine", "--home", home)
    assert resumed.exit_code == 0 and "for each of 3 series" in resumed.stdout
    forecast = run("predict", "--all", "--run", "mine", "--format", "csv", "--home", home)
    assert forecast.stdout == whole
    assert not (home / "unfinished").exists()
    assert "no unfinished fit" in error("fit", "--resume", "--home", home, code=2)


def test_a_resume_on_other_prices_is_refused(monkeypatch, tmp_path, settings):
    from forecaster.swarm.execution.schedule import Schedule

    def interrupted(self):
        raise KeyboardInterrupt

    prices("AAA", 300).to_csv(tmp_path / "p.csv", index=False)
    source = f"files:{tmp_path / 'p.csv'}"
    with monkeypatch.context() as patch:
        patch.setattr(Schedule, "advance", interrupted)
        error("fit", "--source", source, "--config", settings, "--home", tmp_path, code=130)
    prices("AAA", 299).to_csv(tmp_path / "p.csv", index=False)
    done = run("ingest", "--source", source, "--refresh", "--home", tmp_path)  # is meant
    assert done.exit_code == 0
    message = error("fit", "--resume", "--home", tmp_path, code=1)
    assert "stored data have changed since the fit was interrupted" in message
