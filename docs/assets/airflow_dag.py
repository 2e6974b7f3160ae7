"""Run the forecasts of the day; raise if there are alarms."""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag, task


@dag(
    schedule="40 18 * * 1-5",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=15)},
)
def forecasts_of_the_day():
    run = BashOperator(
        task_id="daily",
        bash_command=(
            "forecaster daily /srv/forecaster/daily.toml --home /srv/forecaster/home"
            " --quiet --json /srv/forecaster/summary.json; code=$?;"
            " case $code in 0|3|4) exit 0;; *) exit $code;; esac"
        ),
    )

    @task(retries=0)
    def alarms():
        import json
        from pathlib import Path

        summary = json.loads(Path("/srv/forecaster/summary.json").read_text())
        if summary["exit_code"] == 4:
            raise RuntimeError(summary["alarms"])

    run >> alarms()


forecasts_of_the_day()
