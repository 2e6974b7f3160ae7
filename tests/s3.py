"""Stores of objects: in memory, and by S3's protocol of moto; errors must not show credentials."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forecaster.errors import ForecasterError
from tests.postgresql import SECRET


class Bucket:
    """A folder of fsspec's file system in memory, which no other one shares."""

    def __init__(self):
        fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
        self.system = fsspec.filesystem("memory")
        self.folder = f"/{uuid.uuid4().hex}"
        self.url = f"memory:/{self.folder}"
        self.system.mkdir(self.folder)

    def put(self, name: str, content: bytes) -> None:
        self.system.pipe_file(f"{self.folder}/{name}", content)

    def read(self, name: str) -> bytes:
        return self.system.cat_file(f"{self.folder}/{name}")

    def remove(self, name: str) -> None:
        self.system.rm_file(f"{self.folder}/{name}")

    @property
    def names(self) -> list[str]:
        return [path.removeprefix(f"{self.folder}/") for path in self.system.find(self.folder)]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """Yield its address."""
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def s3(s3_server, monkeypatch, tmp_path_factory) -> str:
    """Set the address and the credentials in the environment; return the address.

    The user's own profile and files of credentials do not count.
    """
    empty = tmp_path_factory.mktemp("aws") / "empty"
    empty.touch()
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server, "AWS_ACCESS_KEY_ID": "geheim",
        "AWS_SECRET_ACCESS_KEY": "geheimnis", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_SHARED_CREDENTIALS_FILE": str(empty), "AWS_CONFIG_FILE": str(empty),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return s3_server


def said(kind: type[ForecasterError], call: Callable[[], object]) -> str:
    """Return the message of the error that a call raises: one line, without a secret."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert not any(secret in text for secret in ("geheim", SECRET, "ge/h"))
    assert "Traceback" not in text and "\n" not in text
    return text


def holding(secret: str, folder: Path) -> list[Path]:
    """Return the files below a folder that hold a text, or are named so."""
    texts = {secret.encode(), secret.encode("utf-16-le")}
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 3
    return [p for p in found if secret in str(p) or any(text in p.read_bytes() for text in texts)]
