"""The master of a run: whether it is this machine, and whether a cluster's can be reached at all. Spark asks for a
minute, and then says something else.
"""

from __future__ import annotations

import itertools
import os
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from kidxlib.errors import UsageError

_TIMEOUT_SECONDS: Final = 10.0
_STANDALONE: Final = "spark://"
_KUBERNETES: Final = "k8s://"
#: Where one is set, Spark's client may reach a Kubernetes API that nobody here reaches.
_PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def is_local(spark: SparkSession) -> bool:
    """Whether all work is done in this process's JVM, and by the workers that it starts."""
    return is_local_master(str(spark.sparkContext.master))


def is_local_master(master: str) -> bool:
    """Whether that is so of a master by its name, before there is a session."""
    return master.startswith("local")


def named_master() -> str:
    """The master that spark-submit's options name; empty where they name none."""
    return _master(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))


def ensure_reachable_master() -> None:
    """Look at the master that spark-submit's options name, as far as it has an address of its own.

    Raises:
        UsageError: nobody answers there, at none of its addresses.
    """
    master = named_master()
    errors = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
        except OSError as error:
            errors.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if errors:
        raise UsageError(f"--master {master}: no connection: {'; '.join(errors)}")


def _master(options: Sequence[str]) -> str:
    found = ""
    for option, value in itertools.pairwise([*options, ""]):
        name, equals, given = option.partition("=")
        if name == "--master":
            found = given if equals else value
    return found


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    with suppress(ValueError):  # Spark says what is wrong with an address
        if master.startswith(_STANDALONE):
            for address in master.removeprefix(_STANDALONE).split(","):
                host, _, port = address.rpartition(":")
                yield host.strip("[]"), int(port)
        elif master.startswith(_KUBERNETES) and not any(map(os.environ.get, _PROXIES)):
            url = urlsplit(master.removeprefix(_KUBERNETES))
            if url.hostname is not None:
                yield url.hostname, url.port or (80 if url.scheme == "http" else 443)
