"""The settings of a client: what Kafka's tools take, as librdkafka names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Uuid

from kidxlib.errors import UsageError
from kidxlib.operations.restore.running_cluster import client_settings, topic_id_text


def test_settings_of_kafkas_tools_are_taken(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={login} username="a" \\\n  password="b\\\\"c";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nssl.endpoint.identification.algorithm=\n"
        "socket.timeout.ms=7\n"
    )
    assert client_settings(config) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": 'b"c',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "7",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ssl.truststore.location=/trust.jks", "ssl.truststore.type is JKS, and expected PEM"),
        ("ssl.keystore.location=/key.jks", "ssl.keystore.type is JKS, and expected PKCS12"),
        ("sasl.jaas.config=Krb5LoginModule required;", "expected a username and a password"),
    ],
)
def test_settings_that_librdkafka_cannot_use_are_refused(line: str, expected: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"{line}\n")
    with pytest.raises(UsageError, match=expected):
        client_settings(config)


def test_topic_ids_are_shown_as_by_kafka() -> None:
    assert topic_id_text(Uuid(-1, -(2**60) - 5)) == "___________v________-w"
