"""A real S3 server on loopback, and a gate in front of it that counts requests and can disturb them."""

from __future__ import annotations

import contextlib
import enum
import http.client
import itertools
import shutil
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pyarrow.fs import FileSelector, FileType, S3FileSystem

from kidxlib.storage.store.requests import Requests
from tests.faults.processes import end_gently, while_it_runs
from tests.support.files import tree

BUCKET: Final = "archive"

#: The server's one user, as AWS' own clients look for it; see `tests.conftest`.
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "kidx",
    "AWS_SECRET_ACCESS_KEY": "kidx-of-the-tests",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # no request leaves this machine
}

_JARS: Final = Path(__file__).resolve().parents[2] / ".jars" / "s3proxy"
_LOGBACK: Final = """
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

_SLOW_DOWN: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
#: Longer than any wait for requests takes.
_GATHERED_SECONDS: Final = 60.0
_CLOSES_WITH_RESET: Final = struct.pack("ii", 1, 0)


_Store = TypeVar("_Store", bound="ObjectStore")


class Fault(enum.Enum):
    """A disturbance of a request."""

    SLOW_DOWN = enum.auto()  # the gate answers 503, as S3 does, and does not pass the request on
    RESET = enum.auto()  # the gate resets the connection, and does not pass the request on
    CUT = enum.auto()  # the gate resets the connection amid the answer's body
    LOST = enum.auto()  # the server does it, and the gate resets the connection instead of answering
    DONE_AND_FAILED = enum.auto()  # the server does it, and the gate answers 500


@dataclass(frozen=True, slots=True)
class Request:
    """
    Attributes:
        key: of the object; empty where objects are listed.
        sent: the size of the answer's body in bytes.
        prefix: below which objects are listed.
    """

    method: str
    key: str
    sent: int
    prefix: str = ""

    @property
    def is_of_log(self) -> bool:
        return self.key.endswith(".log")


@dataclass
class ObjectStore:
    """The server. Clients come through the gate; `files` does not.

    Attributes:
        endpoint: the gate's URL.
        requests: the requests through the gate since they were last cleared.
        before: called with each request's method and key before the request is passed on; it may change objects. A
            status that it returns is the answer; a fault disturbs the request.
        objects: the server's directory of objects.
    """

    endpoint: str
    files: S3FileSystem
    objects: Path
    requests: list[Request] = field(default_factory=list)
    before: Callable[[str, str], int | Fault | None] | None = None

    def disturb(self, every: int, *faults: Fault | int, method: str = "", key: str = "") -> None:
        """Disturb each `every`-th request with this method and this text in its key, with the faults or answers in
        turn.
        """
        lock, number, coming = threading.Lock(), itertools.count(1), itertools.cycle(faults)

        def before(request_method: str, request_key: str) -> Fault | int | None:
            if method not in ("", request_method) or key not in request_key:
                return None
            with lock:
                return next(coming) if next(number) % every == 0 else None

        self.before = before

    def gather(self, count: int, which: Callable[[str, str], bool]) -> None:
        """Hold the requests for whose method and key `which` is true until `count` of them are on their way; refuse
        them if that takes too long.
        """
        coming, enough = itertools.count(1), threading.Event()

        def before(method: str, key: str) -> int | None:
            if not which(method, key):
                return None
            if next(coming) == count:
                enough.set()
            return None if enough.wait(_GATHERED_SECONDS) else 403

        self.before = before

    def upload(self, directory: Path, prefix: str) -> str:
        """Put a directory's files below a prefix, and return the URL."""
        for name, content in tree(directory).items():
            self.put(f"{prefix}/{name}", content)
        return f"s3://{BUCKET}/{prefix}"

    def put(self, key: str, content: bytes) -> None:
        with self.files.open_output_stream(f"{BUCKET}/{key}", compression=None) as stream:
            stream.write(content)

    def delete(self, key: str) -> None:
        self.files.delete_file(f"{BUCKET}/{key}")

    def contents(self, prefix: str) -> dict[str, bytes]:
        infos = self.files.get_file_info(FileSelector(f"{BUCKET}/{prefix}", allow_not_found=True, recursive=True))
        contents = {}
        for info in infos:
            if info.type == FileType.File:
                with self.files.open_input_stream(info.path, compression=None) as stream:
                    contents[info.path.removeprefix(f"{BUCKET}/{prefix}/")] = bytes(stream.read())
        return contents

    def made(self) -> Requests:
        """The requests so far, by kind as kidx counts them; none of them was disturbed."""
        kinds = {"POST": "put"}
        return Requests(
            **Counter(
                kinds.get(request.method, request.method.lower()) if request.key else "list"
                for request in self.requests
            )
        )

    def counted(self, *methods: str, prefix: str = "") -> list[Request]:
        """The requests so far of these methods below a prefix."""
        return [request for request in self.requests if request.method in methods and request.key.startswith(prefix)]


@contextlib.contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    """Start the server on a free port, with its objects below `directory`. Skip the test if there is no Java."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("needs Java for the S3 server")
    assert list(_JARS.glob("*.jar")), f"no jars in {_JARS}; ./setup.sh kafka fetches them"
    (directory / "objects" / BUCKET).mkdir(parents=True)
    (directory / "logback.xml").write_text(_LOGBACK)
    port = free_port()
    (directory / "s3proxy.conf").write_text(
        f"s3proxy.endpoint=http://127.0.0.1:{port}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        f"s3proxy.identity={CREDENTIALS['AWS_ACCESS_KEY_ID']}\n"
        f"s3proxy.credential={CREDENTIALS['AWS_SECRET_ACCESS_KEY']}\n"
        "jclouds.provider=filesystem-nio2\n"
        f"jclouds.filesystem.basedir={directory / 'objects'}\n"
    )
    command = [
        java,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlogback.configurationFile={directory / 'logback.xml'}",
    ]
    command += ["-cp", f"{_JARS}/*", "org.gaul.s3proxy.Main", "--properties", str(directory / "s3proxy.conf")]
    objects = directory / "objects" / BUCKET
    with served(command, port, directory / "log", lambda url, files: ObjectStore(url, files, objects)) as store:
        yield store


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def served(command: list[str], port: int, log: Path, make: Callable[[str, S3FileSystem], _Store]) -> Iterator[_Store]:
    """Start a server, wait until it listens, and put a gate in front of it; `make` gets the gate's URL and files."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True, start_new_session=True)

    def listens() -> bool | None:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0 or None

    try:
        while_it_runs(process, listens)
        files = S3FileSystem(
            access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region=CREDENTIALS["AWS_REGION"],
            endpoint_override=f"http://127.0.0.1:{port}",
        )
        with _gate(port) as (passing, endpoint):
            store = make(endpoint, files)
            passing.store = store
            yield store
    finally:
        end_gently(process)


class _Gate(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a dropped connection would be tried again a second later
    store: ObjectStore

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.server_at = port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that goes away amid a request."""


class _Passing(BaseHTTPRequestHandler):
    """Passes a request on unchanged, with its signature, and the answer back."""

    protocol_version = "HTTP/1.1"
    server: _Gate

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        store = self.server.store
        is_chunked = self.headers.get("Transfer-Encoding") == "chunked"
        body = self._chunks() if is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
        prefix = "" if key else next(iter(parse_qs(url.query).get("prefix", [])), "")
        fault = None if store.before is None else store.before(self.command, key)
        if fault is Fault.SLOW_DOWN or isinstance(fault, int):
            store.requests.append(Request(self.command, key, 0, prefix))
            self._answer(503 if fault is Fault.SLOW_DOWN else fault, _SLOW_DOWN if fault is Fault.SLOW_DOWN else b"")
            return
        if fault is Fault.RESET:
            store.requests.append(Request(self.command, key, 0, prefix))
            self._reset()
            return
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server.server_at)) as server:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    server.putheader(name, value)
            server.endheaders(body, encode_chunked=is_chunked)
            answer = server.getresponse()
            content = answer.read()
            headers = answer.getheaders()
        # Before the answer: a client that has it may look at once at what was counted.
        store.requests.append(Request(self.command, key, len(content), prefix))
        if fault is Fault.LOST:
            self._reset()
            return
        if fault is Fault.DONE_AND_FAILED:
            self._answer(500)
            return
        self.send_response_only(answer.status, answer.reason)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if fault is Fault.CUT:
            self.wfile.write(content[: len(content) // 2])
            self._reset()
            return
        self.wfile.write(content)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        """End the connection so that the client sees a reset."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSES_WITH_RESET)
        self.connection.close()  # else the base class shuts it down first, which is a proper end
        self.close_connection = True

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815


@contextlib.contextmanager
def _gate(port: int) -> Iterator[tuple[_Gate, str]]:
    with _Gate(port) as passing:
        thread = threading.Thread(target=passing.serve_forever, daemon=True)
        thread.start()
        try:
            yield passing, f"http://127.0.0.1:{passing.server_address[1]}"
        finally:
            passing.shutdown()
            thread.join()


def use(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its children find the store, as a user would; forget earlier requests."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    store.before = None
    store.requests.clear()
