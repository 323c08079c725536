"""`tests.kafka.compare` tells what fails with another Kafka or did not run, and which classes and methods it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from py4j.protocol import Py4JError

from tests.kafka.compare import Differences, Result
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
    result = Result("failed", str(caught.getrepr(style="short")))
    assert any(name in each for each in result.moved), result.moved
    assert "Py4JJavaError" not in result.reason


#: How a test ends with another Kafka and with the promised one (None: it is not there), and what is told of it.
_ENDS: Final = {
    ("passed", "passed"): None,
    ("skipped", "skipped"): None,
    ("passed", "skipped"): None,
    ("failed", "passed"): "failing",
    ("error", "skipped"): "failing",
    ("error", None): "failing",
    ("skipped", "passed"): "not_run",
    (None, "passed"): "not_run",
    ("failed", "failed"): "unknown",
    ("passed", "error"): "unknown",
    (None, "failed"): "unknown",
}


@pytest.mark.parametrize(("theirs", "promised"), _ENDS)
def test_what_is_told(theirs: str | None, promised: str | None) -> None:
    """What did not run with the other Kafka is told as what fails: it may hide a difference."""
    found = Differences.of(*({} if each is None else {"a": Result(each)} for each in (theirs, promised)))
    told = _ENDS[theirs, promised]
    assert [name for name in ("failing", "not_run", "unknown") if getattr(found, name)] == ([told] if told else [])
    assert found.is_alike == (told is None)
    assert found.compared == (theirs == promised == "passed")
