"""Files at a URL: of memory and a web server here always, of S3 where moto and s3fs are there."""

import contextlib
import http.server
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import DataError, SourceError, UsageError
from forecaster.files import Home
from forecaster.ingest import Store, ingest, load_panel, open_source
from forecaster.ingest.sources import remote
from forecaster.ingest.sources.remote import read_remote_url
from tests.conftest import prices, run
from tests.s3 import Bucket, holding, s3, s3_server, said

__all__ = ["s3", "s3_server"]  # fixtures
fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
NAMES = ("AAA", "BBB", "CCC")
TABLES = {name: prices(name, 60) for name in NAMES}


def csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


@pytest.fixture
def bucket() -> Bucket:
    """A bucket with a file for each series."""
    bucket = Bucket()
    for name, table in TABLES.items():
        bucket.put(f"daily/{name}.csv", csv(table.drop(columns="ticker")))
    return bucket


def opened(url: str, **options):
    return open_source(f"files:{url}", **options)


def test_files_at_a_url_give_what_files_here_give(tmp_path, bucket):
    bucket.put("daily/readme.md", b"x")
    bucket.put("daily/.hidden/a.csv", b"x")
    for name, table in TABLES.items():
        table.drop(columns="ticker").to_csv(tmp_path / f"{name}.csv", index=False)
    want = load_panel(f"files:{tmp_path}")
    for url in ("daily", "daily/", "daily/*.csv", "daily/[A-C]*.csv", "dai*/*.csv"):
        got = load_panel(f"files:{bucket.url}/{url}")
        assert got.ids == want.ids == NAMES, url
        np.testing.assert_array_equal(got.values, want.values)
    assert load_panel(f"files:{bucket.url}/daily/B*.csv").ids == ("BBB",)
    one = load_panel(f"files:{bucket.url}/daily/BBB.csv")
    np.testing.assert_array_equal(one.values[0], want.values[1])


def test_lost_rows_and_files_are_treated_as_those_of_files_here(tmp_path, bucket):
    home, url = Home(tmp_path), f"{bucket.url}/daily"
    ingest(home, opened(url), None)
    bucket.put("daily/AAA.csv", csv(TABLES["AAA"].iloc[50:].drop(columns="ticker")))
    bucket.remove("daily/CCC.csv")
    arrived = ingest(home, opened(url), None)
    assert "lacks 50 of the 60 stored rows" in arrived.stale["AAA"]
    assert "no longer in the source" in arrived.stale["CCC"]
    bucket.put("daily/BBB.csv", b"date,close\n2020-01-02,\xff\xfe\n")
    arrived = ingest(home, opened(url), None)
    assert arrived.stale["BBB"].startswith(f"{url}/BBB.csv"), "not the copy is named"
    assert all(len(arrived.store.read_one(name)) == 60 for name in NAMES)
    bucket.put("daily/BBB.csv", csv(TABLES["BBB"].drop(columns="ticker")))
    arrived = ingest(home, opened(url, append=True), None, refresh=True)
    assert "AAA" not in arrived.stale and len(arrived.store.read_one("AAA")) == 60


@pytest.mark.parametrize("name", ["../evil.csv", "a/../../evil.csv", "a\\b.csv", "c:d.csv"])
def test_names_that_lead_elsewhere_are_refused(bucket, monkeypatch, name):
    path = f"{bucket.folder}/{name}"
    info = {"name": path, "type": "file", "size": 4, "created": "now"}
    monkeypatch.setattr(type(bucket.system), "find", lambda *args, **options: {path: info})
    text = said(DataError, opened(bucket.url).tickers)
    assert "cannot be that of a file here" in text


@pytest.mark.parametrize(
    ("url", "kind", "what"),
    [
        ("ftp://me:geheim@host/a.csv", UsageError, "URLs of this kind are not supported"),
        ("simplecache::s3://b/a.csv", UsageError, "URLs of this kind are not supported"),
        ("s3://me:ge/geheim@b/a.csv", UsageError, "holds no user, password or query"),
        (
            "az://c/a.csv?sv=1&sig=geheim",
            UsageError,
            "a URL of az:// holds no user, password or query",
        ),
        ("https://me:geheim@host/", UsageError, "expected the URL of one file"),
        ("https://me:geheim@host/prices/*.csv", UsageError, "expected the URL of one file"),
        ("https://me:ge/geheim@host/a.csv", UsageError, "host and port are not understood"),
        ("https://host:99999/a.csv", UsageError, "host and port are not understood"),
        ("https://host/a/..", UsageError, "expected the URL of one file"),
        ("https://host/a.csv?k=${NOT_SET_HERE}", UsageError, "${NOT_SET_HERE}, which is not set"),
        ("memory://nowhere/at/all", DataError, "no .csv or .parquet file there"),
        ("memory://nowhere/*.csv", DataError, "no .csv or .parquet file there"),
    ],
)
def test_a_bad_url_is_a_clear_error_without_secrets(url, kind, what):
    assert what in said(kind, lambda: load_panel(f"files:{url}"))


@pytest.mark.parametrize("kind", ["az", "abfs", "abfss"])
def test_a_url_may_name_the_account_of_azure(monkeypatch, kind):
    url = f"{kind}://prices@mine.dfs.core.windows.net/p.csv"
    for account in ("", "Mine"):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", account)
        assert read_remote_url(url).url == url
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    with pytest.raises(UsageError, match="another account than AZURE_STORAGE_ACCOUNT_NAME"):
        read_remote_url(url)


def test_names_hold_no_secret_and_tell_queries_apart(monkeypatch):
    monkeypatch.setenv("TOKEN", "geh/eim&1")
    one = read_remote_url("https://me:geheim@host:8000/a/p.csv?symbol=A&key=${TOKEN}")
    assert one.url.endswith("/p.csv?symbol=A&key=geh%2Feim%261")
    assert one.shown.startswith("https://host:8000/a/p.csv?") and "geh" not in one.shown
    other = read_remote_url("https://me:geheim@host:8000/a/p.csv?symbol=B&key=${TOKEN}")
    assert one.shown != other.shown
    monkeypatch.setenv("TOKEN", "another")
    again = read_remote_url("https://you@host:8000/a/p.csv?symbol=A&key=${TOKEN}")
    assert again.shown == one.shown, "a new password is no new source"
    text = one.hidden("no geh/eim&1 or geh%2Feim%261 of me:geheim at all")
    assert "geh" not in text
    calls: list[Callable[[], object]] = [
        lambda: open_source("files:https://me:geheim@h/p.csv?k=geheim", query="x"),
        lambda: open_source("FILES:https://me:geheim@h/p.csv?k=geheim"),
    ]
    for call in calls:
        said(UsageError, call)


def test_names_keep_variables_as_they_were_typed(tmp_path, bucket, monkeypatch):
    monkeypatch.setenv("PLACE", f"{bucket.folder.strip('/')}/geheim")
    for name in NAMES:
        bucket.put(f"geheim/{name}.csv", csv(TABLES[name].drop(columns="ticker")))
    source = opened("memory://${PLACE}")
    assert ingest(Home(tmp_path), source, None).changed == 3
    assert source.name == "files:memory://${PLACE}" and not holding("geheim", tmp_path)
    monkeypatch.setenv("PLACE", f"{bucket.folder.strip('/')}/geheim/none")
    said(DataError, opened("memory://${PLACE}").tickers)
    web = read_remote_url("https://me@host/${PLACE}/p.csv")
    assert web.shown == "https://host/${PLACE}/p.csv" and web.url.endswith("/geheim/none/p.csv")
    arn = "s3://arn:aws:s3:eu-west-1:1:accesspoint/desk/a@b.csv"
    assert read_remote_url(arn).shown == arn


class Server:
    """A web server with one file, its counts of requests by method, and ways to fail."""

    def __init__(self):
        self.content, self.needs = csv(pd.concat(TABLES.values())), ""
        self.asked: Counter[str] = Counter()
        self.cut, self.code, self.sizes = False, 200, True
        self.elsewhere = ""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(b"")

            def do_GET(self):
                self.answer(server.content)

            def answer(self, body: bytes):
                server.asked[self.command] += 1
                if server.elsewhere and server.elsewhere != self.path:
                    self.send_response(302)
                    self.send_header("Location", server.elsewhere)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                code = server.code if server.needs in self.path else 403
                self.send_response(code)
                self.send_header("ETag", '"always-the-same"')
                if server.sizes:
                    self.send_header("Content-Length", str(len(server.content)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body[: len(body) // 2] if server.cut else body)
                if server.cut:
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, format, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/data/prices.csv"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def web() -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_a_file_of_a_web_server_is_always_copied_again(tmp_path, web, monkeypatch):
    """Some servers send the same ETag for ever."""
    monkeypatch.setenv("WEB_KEY", "geheim&nis")
    home, url = Home(tmp_path), f"{web.url}?key=${{WEB_KEY}}"
    web.needs = "key=geheim%26nis"
    assert ingest(home, opened(url), None).changed == 3
    assert ingest(home, opened(url), None).changed == 0
    table = pd.concat(TABLES.values())
    table["close"] = [*table["close"].iloc[:-1], table["close"].iloc[-1] + 1]
    web.content = csv(table)
    assert ingest(home, opened(url), None).changed == 1
    web.sizes = False
    web.content = csv(pd.concat(prices(name, 62) for name in NAMES))
    assert ingest(home, opened(url), None).changed == 3 and web.asked["GET"] == 4
    assert not holding("geheim", tmp_path)


def test_what_fails_on_the_way_is_one_clear_error_and_changes_nothing(tmp_path, web, monkeypatch):
    home, url = Home(tmp_path), web.url.replace("http://", "http://me:geheim@")
    ingest(home, opened(url), None)
    (store,) = Store.all_of(home)
    assert store.source == f"files:{web.url}"
    web.cut = True
    text = said(SourceError, lambda: ingest(home, opened(url), None))
    assert text.startswith(f"files:{web.url}: ")
    web.cut, web.code = False, 500
    assert "500" in said(SourceError, lambda: ingest(home, opened(url), None))
    web.code, web.needs = 200, "a key"
    assert "403" in said(SourceError, lambda: ingest(home, opened(url), None))
    monkeypatch.setattr(remote, "_READ", 0.2)
    web.http.shutdown()
    web.http.server_close()
    text = said(SourceError, lambda: ingest(home, opened(url), None))
    assert "onnect" in text
    done = run("ingest", "--source", f"files:{url}", "--home", home)
    assert done.exit_code in (1, 3) and "geheim" not in done.output, done.output
    assert len(store.read_one("AAA")) == 60


def test_the_query_of_a_redirection_is_in_no_message(tmp_path, web):
    """Such as the signature by which a server lets others read an object of its store."""
    home, web.elsewhere = Home(tmp_path), "/signed.csv?signature=geheim"
    assert ingest(home, opened(web.url), None).changed == 3
    assert not holding("geheim", tmp_path)
    web.code = 500
    text = said(SourceError, lambda: ingest(home, opened(f"{web.url}?a=1"), None))
    assert "/signed.csv?***" in text


def test_a_file_of_another_size_than_was_said_is_refused(bucket, monkeypatch):
    find = type(bucket.system).find
    lied = lambda *args, **options: {  # noqa: E731
        path: {**info, "size": 100} for path, info in find(*args, **options).items()
    }
    monkeypatch.setattr(type(bucket.system), "find", lied)
    url = f"{bucket.url}/daily/AAA.csv"
    assert "where 100 were expected" in said(SourceError, lambda: load_panel(f"files:{url}"))


def test_s3(tmp_path, s3):
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.mkdir("desk")
    for name, table in TABLES.items():
        system.pipe_file(f"desk/p/{name}.csv", csv(table.drop(columns="ticker")))
    for key in ("p/", "p/empty/", "p/.csv/"):  # as consoles mark folders
        system.call_s3("put_object", Bucket="desk", Key=key, Body=b"")
    home = Home(tmp_path)
    for url, ids in (("p/*.csv", 3), ("p", 3), ("p/AAA.csv", 1)):
        assert ingest(home, opened(f"s3://desk/{url}"), None).changed == ids
        assert ingest(home, opened(f"s3://desk/{url}"), None).changed == 0
    system.pipe_file("desk/p/AAA.csv", csv(prices("AAA", 61).drop(columns="ticker")))
    assert ingest(home, opened("s3://desk/p"), None).changed == 1
    text = said(SourceError, lambda: ingest(home, opened("s3://nowhere/p"), None))
    assert text.startswith("files:s3://nowhere/p: ")
    assert not holding("geheim", tmp_path)
