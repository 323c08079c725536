"""What `kidx dump` prints of a file, compared with what Kafka's `kafka-dump-log` prints of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from kidxlib.commands.dump import dump
from kidxlib.format import segment_files
from kidxlib.format.kafka_release import NEWEST
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump

#: Kafka makes room for as much as a size within compressed bytes says, before it looks whether so much is there.
NO_MEMORY: Final = "OutOfMemoryError"
_NOT_WELL: Final = re.compile(
    rb"is[vV]alid: false|^Found \d+ invalid bytes|key: (Unknown record type -?\d+|Error) at|payload: Error at"
)
_QUOTA: Final = re.compile(rb'(?<="value":)-?\d+\.\d+(E-?\d+)?(?=,"remove")')
_LOGS: Final = (segment_files.LOG_SUFFIX, segment_files.KRAFT_SNAPSHOT_SUFFIX)


def assert_as_kafka(kafka_dump: KafkaDump, file: Path, options: Iterable[str]) -> str:
    """Lines, findings and the end are Kafka's, and no file beside it is another afterwards; how it ended.

    Where Kafka throws, it prints no findings. Where it has too little memory, more is given to it.
    """
    before = _state(file.parent)
    release = str(min(kafka_dump.kafka.release, NEWEST))
    ours = CliRunner().invoke(dump, [*options, "--kafka-version", release, str(file)], standalone_mode=False)
    assert _state(file.parent) == before
    if ours.exception is not None:
        raise ours.exception
    kafkas = kafka_dump(*options, "--files", str(file))
    if kafkas.thrown is not None and kafkas.thrown.name == NO_MEMORY:
        with Kafka(
            ("-Xmx6G", "-XX:+UseSerialGC"), kafka_dump.kafka.version
        ) as larger:  # any size that Java makes room for
            kafkas = KafkaDump(larger, kafka_dump.scratch)(*options, "--files", str(file))
    _put_back(file.parent, before)

    assert _doubles_as_python_has_them(ours.stdout_bytes.split(b"\n")[:-1]) == _doubles_as_python_has_them(kafkas.lines)
    own = f"{file}: ".encode()  # how many there are, which Kafka does not say
    findings = [line for line in ours.stderr_bytes.splitlines() if not line.startswith(own)]
    if kafkas.thrown is not None:
        assert ours.return_value == ExitCode.PROBLEMS_FOUND, kafkas.thrown
        return kafkas.thrown.name
    if file.suffix == segment_files.SNAPSHOT_SUFFIX:
        assert ours.return_value == (ExitCode.PROBLEMS_FOUND if kafkas.error_lines else ExitCode.OK)
        return "CorruptSnapshotException" if kafkas.error_lines else "well"
    if file.suffix in _LOGS:
        well = not any(_NOT_WELL.search(line) for line in kafkas.lines)
        kafkas_findings = [line for line in kafkas.error_lines if not line.startswith(b"  -1 is followed by ")]
        kafkas_findings = kafkas_findings if len(kafkas_findings) > 1 else []
    else:
        well, kafkas_findings = not kafkas.error_lines, kafkas.error_lines
    assert _findings(findings) == _findings(kafkas_findings)
    assert ours.return_value == (ExitCode.OK if well else ExitCode.PROBLEMS_FOUND)
    return "well" if well else "not well"


def _doubles_as_python_has_them(lines: Iterable[bytes]) -> list[bytes]:
    """Lines whose quotas have as few digits as they need; before 19, Java has more of some."""
    return [_QUOTA.sub(lambda match: repr(float(match[0])).encode(), line) for line in lines]


def _findings(lines: Iterable[bytes]) -> set[bytes]:
    """Headings and findings, in no order. Of those at one offset of a log or an `.index`, Kafka keeps the last."""
    kept = {}
    for line in lines:
        at_offset = re.match(rb"  \S+ is followed by |  Index offset: \S+,", line)
        kept[at_offset[0] if at_offset else line] = line
    return set(kept.values())


def _state(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def _put_back(directory: Path, before: dict[str, tuple[bytes, int]]) -> None:
    """Undo what Kafka has done to the files."""
    for name in _state(directory).keys() - before.keys():
        (directory / name).unlink()
    for name, (content, _) in before.items():
        if (directory / name).read_bytes() != content:
            (directory / name).write_bytes(content)
