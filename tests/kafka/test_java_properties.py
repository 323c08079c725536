"""Files of settings are read as `java.util.Properties` reads them."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kidxlib.storage.log_dir import parse_properties
from tests.support.kafka.classes import Kafka

_PIECES = st.sampled_from(
    [
        "a",
        "key",
        "log.dirs",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\n",
        "\r\n",
        "\r",
        "\\",
        "\\\n",
        "#",
        "!",
        "\\u0041",
        "\\t",
        "ä",
    ]
)


@given(st.lists(_PIECES, max_size=14).map("".join))
@settings(max_examples=400)
@example("a=b\\\n   c\\\\\n#d=e\n ! f\ng h : = i\n\\ j = k \n=l\nm\\=n:o\na=last")
def test_they_are_javas(kafka: Kafka, text: str) -> None:
    java = kafka.gateway.jvm.java
    properties = java.util.Properties()
    content = text.encode("latin-1")
    properties.load(java.io.ByteArrayInputStream(content))
    theirs = {str(name): str(properties.getProperty(name)) for name in properties}
    theirs.pop("", None)
    assert parse_properties(content) == theirs
