"""What `kidx recover` plans, and the partitions of the sample that it is tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from kidxlib.cli.main import kidx
from kidxlib.format.topic_partition import TopicPartition

NAME: Final = "plain-zstd-0"
PARTITION: Final = TopicPartition("plain-zstd", 0)
ENDS: Final = {PARTITION: 20_000, TopicPartition("append-time", 0): 8_000}
LAST: Final = "00000000000000013697.log"


def run_kidx(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(kidx, [*map(str, arguments), "--processes", "1"], standalone_mode=False)
    assert result.exception is None, result.exception
    return result


def planned(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    result = run_kidx("recover", *arguments, "--json")
    return int(result.return_value or 0), json.loads(result.stdout)


def shown(*arguments: str | Path) -> str:
    return run_kidx("recover", *arguments).output
