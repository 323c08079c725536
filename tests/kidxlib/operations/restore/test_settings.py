"""The commands that give restored topics their settings back."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kidxlib.operations.restore.cluster import ConfigProof, RestoredConfig, RestoredTopic
from kidxlib.operations.restore.settings import lifts


def test_a_shell_takes_a_command_as_it_is_printed(tmp_path: Path) -> None:
    """Files whose names fit `[compact,delete]` as a pattern are none of its business; Kafka's tool takes no `--help`
    for the name of a topic but with an equals sign (`tests/kafka/test_restore.py`).
    """
    was = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    configs = [RestoredConfig(name=name, value="-1", proof=ConfigProof.METADATA, was=was[name]) for name in was]
    topic = RestoredTopic(name="--help", topic_id="id", partitions=(), configs=tuple(configs))
    [command] = lifts(topic)
    (tmp_path / "cleanup.policy=c,retention.ms=1000").touch()
    printed = subprocess.run(["bash", "-c", f"printf '%s\n' {command}"], cwd=tmp_path, capture_output=True, check=True)
    assert printed.stdout.decode().splitlines() == [
        *("--alter", "--entity-type", "topics", "--entity-name=--help"),
        *("--add-config", "cleanup.policy=[compact,delete],retention.ms=1000"),
    ]
