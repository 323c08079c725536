"""What a check prints once all is equal. What it compares is tested beside real brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kidxlib.operations.restore import check
from kidxlib.operations.restore.check import CheckRequest, check_restore
from kidxlib.operations.restore.running_cluster import RunningTopic

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
