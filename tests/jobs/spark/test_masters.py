"""Whether a cluster's master answers is looked at before Spark is started."""

from __future__ import annotations

import shlex
import socket
from typing import Final

import pytest

from jobs.common.spark.masters import ensure_reachable_master
from kidxlib.errors import UsageError

_PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("options", [None, "", "pyspark-shell", "--master local[*,4] pyspark-shell", "--master yarn"])
def test_a_master_without_an_address_is_sparks_to_look_for(
    options: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under spark-submit itself, as Airflow starts jobs, there are no such options at all."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if options is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", options)
    ensure_reachable_master()


@pytest.mark.parametrize("form", ["--master spark://{}", "--master=spark://{}", "--master k8s://https://{}"])
def test_a_master_that_nobody_answers_at_is_refused(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*shlex.split(form.format(address)), "pyspark-shell"]))
        ensure_reachable_master()
    with pytest.raises(UsageError, match=f"{address}: Connection refused"):
        ensure_reachable_master()


@pytest.mark.parametrize("proxy", _PROXIES)
def test_behind_a_proxy_kubernetes_is_sparks_to_look_for(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's client goes through it; to a master of Spark's own nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master k8s://https://{address} pyspark-shell")
    ensure_reachable_master()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master spark://{address} pyspark-shell")
    with pytest.raises(UsageError, match=f"{address}: Connection refused"):
        ensure_reachable_master()
