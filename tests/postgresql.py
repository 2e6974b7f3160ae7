"""A PostgreSQL server of its own for the tests of databases."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SECRET = "ge/h#im@%2F:1"


class Server(NamedTuple):
    """A PostgreSQL server on a socket: its URLs, and what runs SQL as its owner."""

    url: str
    wrong: str
    run: Callable[[str], object]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """PostgreSQL with a password, as a user of its own where the tests run as root."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    program = Path(found[-1]) if found else Path(shutil.which("postgres") or "missing")
    if not program.exists():
        pytest.skip("PostgreSQL is not installed")
    names = [user.pw_name for user in pwd.getpwall()]
    owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    if os.geteuid() != 0:
        owner = []
    elif "postgres" not in names or shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres or no setpriv")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a short path, for the socket
    (folder / "pw").write_text(SECRET)
    if owner:
        for path in (folder, folder / "pw"):
            shutil.chown(path, "postgres")
    data = str(folder / "data")
    initdb = [str(program.with_name("initdb")), "-D", data, "-U", "me", "-A", "scram-sha-256"]
    ctl = [str(program.with_name("pg_ctl")), "-D", data]
    start = ["-w", "-o", f"-k {folder} -c listen_addresses= -F", "-l", str(folder / "log")]
    try:
        for words in (
            [*initdb, "--no-sync", "-E", "UTF8", f"--pwfile={folder / 'pw'}"],
            [*ctl, *start, "start"],
        ):  # fmt: skip
            subprocess.run([*owner, *words], check=True, capture_output=True, cwd="/")
        address = f"/postgres?host={folder}"

        def execute(text: str) -> object:
            with psycopg.connect(
                host=str(folder), user="me", password=SECRET, dbname="postgres", autocommit=True
            ) as connection:
                return connection.execute(text.encode()).statusmessage

        yield Server(
            f"sql:postgresql://me:${{PG_TEST_SECRET}}@{address}",
            f"sql:postgresql://me:${{PG_TEST_WRONG}}@{address}", execute,
        )  # fmt: skip
    finally:
        subprocess.run([*owner, *ctl, "-m", "immediate", "stop"], capture_output=True, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def secrets(monkeypatch) -> None:
    monkeypatch.setenv("PG_TEST_SECRET", SECRET)
    monkeypatch.setenv("PG_TEST_WRONG", f"{SECRET}-but-wrong")
