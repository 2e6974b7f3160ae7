"""Messages that tests provoke, each beside what it said when somebody last read it.

``messages.txt`` holds every message as a user reads it, under the test that provokes it, to be
read from top to bottom. A message may be reworded; one that no longer names an option, a file, a
number, a name in capitals or quoted words that stand there fails its test.

    python -m tests.messages [tests/ingest ...]

writes the file anew from the tests that provoke messages, all or those of some paths; what changed
is reviewed as a diff.
"""

import ast
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "messages.txt"
RECORDED = "FORECASTER_TEST_MESSAGES"  # a folder: messages are written there, not compared

NAMES = re.compile(
    r"`[^`]+`"  # commands and code
    r"|(?<!\w)'[^'\n]*'(?!\w)"
    r"|--[a-z][a-z-]*"
    r"|\b[\w-]+\.(?:csv|json|parquet|toml|txt|xlsx|html|zip|db|py)\b"
    r"|\b\d[\d_,.:-]*\d\b|\b\d\b"
    r"|\b[A-Z][A-Z0-9]+\b"
)
VARYING = (
    (re.compile(r"(?<![\w%])(?:/[\w.@+%=-]+){2,}/(?=[\w.@+%=-])"), "…/"),  # a temporary folder
    (re.compile(r"…/test_\w+"), "…"),  # the folder itself
    (re.compile(r"files%3A[\w.%+-]*~[0-9a-f]{8}"), "files~…"),  # a store of files in it
    (re.compile(r"\b\d{8}-\d{6}-\d{3}\b"), "…"),  # a run
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:…"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x…"),
)

Messages = dict[str, list[tuple[str, str]]]


@contextlib.contextmanager
def refuses(kind: type[Exception]) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message names what ``messages.txt`` says."""
    with pytest.raises(kind) as caught:
        yield caught
    compare(kind, str(caught.value))


@contextlib.contextmanager
def warns(kind: type[Warning]) -> Iterator[pytest.WarningsRecorder]:
    """Expect warnings that name together what ``messages.txt`` says."""
    with pytest.warns(kind) as caught:
        yield caught
    said = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, kind))
    compare(kind, "\n".join(said))


seen: dict[str, int] = {}


def compare(kind: type, said: str) -> None:
    """Compare a message with the one of the file, or record it."""
    test = os.environ["PYTEST_CURRENT_TEST"].rsplit(" (", 1)[0]
    said = plain(said)
    if folder := os.environ.get(RECORDED):
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as file:
            print(json.dumps([test, kind.__name__, said]), file=file)
        return
    number = seen[test] = seen.get(test, -1) + 1
    kept = read().get(test, [])
    assert number < len(kept), f"no message {number + 1} of {test} in messages.txt: {said}"
    lost = names(kept[number][1]) - names(said)
    assert not lost, f"the message no longer names {', '.join(sorted(lost))}:\n{said}"


def plain(said: str) -> str:
    """Return a message without what differs from run to run."""
    for pattern, instead in VARYING:
        said = pattern.sub(instead, said)
    return said.rstrip()


def names(said: str) -> set[str]:
    """Return what a message names: options, files, numbers, capitals, quoted words."""
    return {name.strip("`'") for name in NAMES.findall(said)}


def read() -> Messages:
    """Return the file's messages by test."""
    found: list[tuple[str, str, int, list[str]]] = []
    test = path = ""
    for line in FILE.read_text().splitlines():
        depth = len(line) - len(line.lstrip(" "))
        text = line[min(depth, 6) :]
        if depth == 0 and text:
            path = text
        elif depth == 2:
            test = f"{path}::{text}"
        elif depth == 4:
            head, said = text.split(": ", 1)
            kind, _, count = head.partition(" x")
            found.append((test, kind, int(count or 1), [said]))
        elif text or depth >= 6:
            found[-1][-1].append(text)
    messages: Messages = {}
    for test, kind, count, lines in found:
        messages.setdefault(test, []).extend([(kind, "\n".join(lines))] * count)
    return messages


def write(messages: Messages) -> None:
    """Write the file, by path and test; a message that comes again at once has a count."""
    lines: list[str] = []
    path = ""
    for test, said in sorted(messages.items()):
        here, name = test.split("::", 1)
        if here != path:
            lines += ([""] if path else []) + [here]
            path = here
        lines.append(f"  {name}")
        for (kind, message), same in itertools.groupby(said):
            count = len(list(same))
            head = kind if count == 1 else f"{kind} x{count}"
            lines.append(f"    {head}: " + message.replace("\n", "\n      "))
    FILE.write_text("\n".join(lines) + "\n")


def there(test: str) -> bool:
    """Return whether a test of the file still is in the tree."""
    path, name = test.split("::", 1)
    place = ROOT / path
    function = name.split("[")[0].split("::")[-1]
    return place.exists() and f"def {function}(" in place.read_text()


def provoking(file: Path) -> list[str]:
    """Return the tests of a file that provoke messages; all of it where a helper does."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(call, ast.Call) and ast.unparse(call.func) in ("refuses", "warns")
            for call in ast.walk(node)
        ):
            found.append(node.name)
    path = str(file.relative_to(ROOT))
    helpers = not all(name.startswith("test_") for name in found)
    return [path] if helpers else [f"{path}::{name}" for name in found]


def renew(paths: list[str]) -> int:
    """Run the tests that provoke messages and write the file from what they said."""
    tests = [
        test
        for path in paths or ["tests"]
        for file in (sorted((ROOT / path).rglob("test_*.py")) or [ROOT / path])
        for test in provoking(file)
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {RECORDED: folder}
        command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "slow or not slow", *tests]
        # Without a test that provokes one, pytest would run all.
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode if tests else 0
        heard: Messages = {}
        for part in sorted(Path(folder).iterdir()):
            for line in part.read_text().splitlines():
                test, kind, said = json.loads(line)
                heard.setdefault(test, []).append((kind, said))
    kept = {test: said for test, said in read().items() if there(test)} if FILE.exists() else {}
    write(kept | heard)
    return code


if __name__ == "__main__":
    sys.exit(renew(sys.argv[1:]))
