"""What a check prints once all is equal, and which settings its client takes. What it compares is tested beside real
brokers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Uuid

from kidxlib.errors import UsageError
from kidxlib.operations.restore import check
from kidxlib.operations.restore.check import CheckRequest, RunningTopic, check_restore, client_settings, topic_id_text

_LIFT = "--alter --entity-type topics --entity-name=orders --delete-config retention.ms"


class _EmptyCluster:
    def __init__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def cluster_id(self) -> str:
        return "new"

    def topics(self, _: object) -> dict[str, RunningTopic]:
        return {}

    def topic_names(self) -> set[str]:
        return set()

    def offsets(self, _: object) -> dict[object, object]:
        return {}


@pytest.mark.parametrize(("config", "option"), [(None, ""), ("a client.properties", " --command-config='{}'")])
def test_the_hold_is_lifted_as_the_cluster_was_reached(
    config: str | None, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secured cluster answers nobody without the settings of a client."""
    monkeypatch.setattr(check, "RunningCluster", _EmptyCluster)
    applied = {"applied": True, "cluster_id": "new", "topics": [], "contents": [], "groups": [], "replicas": []}
    (plan := tmp_path / "restored.json").write_text(json.dumps({**applied, "lift": [_LIFT]}))
    if (path := None if config is None else tmp_path / config) is not None:
        path.write_text("security.protocol=SSL\n")
    outcome = check_restore(CheckRequest(plan=plan, bootstrap="host:9093", command_config=path))
    command = f"kafka-configs --bootstrap-server host:9093{option.format(path)} {_LIFT}"
    assert outcome.values["lift"] == [command] and f"  {command}" in outcome.items


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
