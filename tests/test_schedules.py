"""The templates of the guide are what their schedulers read, and call the program as it is."""

import ast
import configparser
import re
import shlex
from pathlib import Path

import pytest

from forecaster.cli import main
from forecaster.daily.day_summary import EXIT_CODES
from tests.conftest import blocks

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
PAGE = ASSETS.parent / "guide" / "every-morning.md"


def check_command(words: list[str]):
    """Parse a command as the program does, without running it."""
    program, name, *arguments = words
    assert (program, name) == ("forecaster", "daily")
    context = main.commands[name].make_context(name, list(arguments))
    assert str(context.params["file"]).endswith(".toml") and context.params["quiet"]


def check_schedule(text: str):
    minute, hour, *rest = text.split()
    assert 0 <= int(minute) < 60 and 0 <= int(hour) < 24 and rest == ["*", "*", "1-5"]


def test_cron():
    (text,) = blocks(PAGE, "crontab")
    *settings, line = text.strip().splitlines()
    assert all(re.fullmatch(r"[A-Z_]+=\S+", each) for each in settings)
    fields = line.split(maxsplit=5)
    check_schedule(" ".join(fields[:5]))
    check_command(shlex.split(fields[5]))


def test_systemd():
    units = []
    for text in blocks(PAGE, "ini"):
        parser = configparser.ConfigParser(interpolation=None, strict=True)
        parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
        parser.read_string(text)
        units.append(parser)
    service, timer = units
    check_command(shlex.split(service["Service"]["ExecStart"]))
    assert int(service["Service"]["SuccessExitStatus"]) == EXIT_CODES["partly"]
    assert re.fullmatch(r"Mon\.\.Fri \d\d:\d\d America/New_York", timer["Timer"]["OnCalendar"])
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_airflow():
    text = (ASSETS / "airflow_dag.py").read_text()
    tree = ast.parse(text)
    compile(tree, "dag.py", "exec")
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    (command,) = [each for each in texts if isinstance(each, str) and "forecaster daily" in each]
    check_command(shlex.split(command.split(";")[0]))
    done = re.search(r"case \$code in ([\d|]+)\)", command)
    assert done and {int(code) for code in done[1].split("|")} == {
        code for state, code in EXIT_CODES.items() if state != "failed"
    }
    (schedule,) = [each for each in texts if isinstance(each, str) and each.endswith("1-5")]
    check_schedule(schedule)


def test_kubernetes():
    yaml = pytest.importorskip("yaml")
    text = (ASSETS / "cronjob.yaml").read_text()
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    check_schedule(job["spec"]["schedule"])
    inner = job["spec"]["jobTemplate"]["spec"]
    (container,) = inner["template"]["spec"]["containers"]
    check_command(container["command"])
    (rule,) = inner["podFailurePolicy"]["rules"]
    final = {2, EXIT_CODES["partly"], EXIT_CODES["alarm"]}
    assert set(rule["onExitCodes"]["values"]) == final
    volumes = {volume["name"] for volume in inner["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_the_exit_codes_are_those_of_the_guide():
    codes = re.findall(r"^\| (\d) \|", PAGE.read_text(), re.MULTILINE)
    assert set(map(int, codes)) == {2, *EXIT_CODES.values()}


def test_every_alarm_is_described():
    from forecaster.daily import alarms
    from forecaster.record.monitoring import COVERAGE, ERRORS

    kinds = {COVERAGE, ERRORS, alarms.LATE, alarms.JUMPED, alarms.FROZEN, alarms.SHRUNK,
             alarms.CHANGED, alarms.MODEL}  # fmt: skip
    assert kinds <= set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
