"""Batches as a producer would send them, one request after the other, and what a broker answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tests.kafka.reading import TIMEOUT_SECONDS

NONE: Final = 0
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45

#: `ProduceRequest` of a version without tagged fields, that Kafka 4.3 knows.
_API_KEY, _VERSION = 0, 3
_CLIENT: Final = b"kidx-tests"


class Answer(NamedTuple):
    """What a broker says of a batch: an error of Kafka's `Errors`, and the offset of its first record."""

    error: int
    offset: int


class Connection:
    """A connection to a broker, which leads all partitions."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._correlations = itertools.count()

    def produce(self, batches: Mapping[tuple[str, int], bytes]) -> dict[tuple[str, int], Answer]:
        """Send a batch to each of some partitions, with `acks=all`."""
        correlation = next(self._correlations)
        header = struct.pack(">hhih", _API_KEY, _VERSION, correlation, len(_CLIENT)) + _CLIENT
        body = struct.pack(">hhii", -1, -1, int(TIMEOUT_SECONDS * 1000), len(batches))
        for (topic, partition), batch in batches.items():  # a topic may come several times
            name = topic.encode()
            body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        [size] = struct.unpack(">i", self._file.read(4))
        answer = self._file.read(size)
        assert answer[:4] == struct.pack(">i", correlation)
        return dict(_answers(answer[4:]))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _answers(body: bytes) -> Iterator[tuple[tuple[str, int], Answer]]:
    [topics], position = struct.unpack_from(">i", body), 4
    for _ in range(topics):
        [length] = struct.unpack_from(">h", body, position)
        topic = body[position + 2 : position + 2 + length].decode()
        [partitions] = struct.unpack_from(">i", body, position := position + 2 + length)
        position += 4
        for _ in range(partitions):
            partition, error, offset, _ = struct.unpack_from(">ihqq", body, position)
            position += 22
            yield (topic, partition), Answer(error, offset)


@contextlib.contextmanager
def connected(bootstrap: str) -> Iterator[Connection]:
    """A connection for as long as the context."""
    with contextlib.closing(Connection(bootstrap)) as connection:
        yield connection
