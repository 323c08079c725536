"""`tests.kafka.compare` names the classes and methods that another Kafka does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from py4j.protocol import Py4JError

from tests.kafka.compare import Result
from tests.support.kafka.classes import Kafka
from tests.support.kafka.functions import LOG_PACKAGE
from tests.support.kafka.moved import MovedError

_COMMON: Final = "org.apache.kafka.common"
#: By what is named: how the harness comes to ask for it.
_NOT_THERE: Final[dict[str, Callable[[Kafka], Any]]] = {
    f"{_COMMON}.utils.Gone": lambda kafka: kafka.gateway.jvm.org.apache.kafka.common.utils.Gone(1),
    f"{_COMMON}.Gone.of": lambda kafka: kafka.gateway.jvm.org.apache.kafka.common.Gone.of(1),
    f"{_COMMON}.gone.Uuid": lambda kafka: kafka.find(f"{_COMMON}.gone.Uuid"),
    f"{_COMMON}.Uuid.gone": lambda kafka: kafka.gateway.jvm.org.apache.kafka.common.Uuid.gone(1),
    "LogDirFailureChannel([])": lambda kafka: (
        kafka.gateway.jvm.org.apache.kafka.storage.internals.log.LogDirFailureChannel()
    ),
    f"{_COMMON}.Uuid.gone()": lambda kafka: kafka.functions.method(
        f"{_COMMON}.Uuid", "gone", kafka.functions.find("java.lang.String")
    ),
    f"{LOG_PACKAGE}.Gone": lambda kafka: kafka.functions.find(f"{LOG_PACKAGE}.Gone"),
}


@pytest.mark.parametrize("name", _NOT_THERE)
def test_what_is_not_there_is_named(kafka: Kafka, name: str) -> None:
    with pytest.raises((MovedError, Py4JError)) as caught:
        _NOT_THERE[name](kafka)
    moved = Result("failed", str(caught.getrepr(style="short"))).moved
    assert any(name in each for each in moved), moved
