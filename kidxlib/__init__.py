"""Kafka's log segments and their sparse indexes, without Spark and without a broker. `errors` has the exceptions;
`java` has numbers, texts and properties files as Java has them.

The library is what `__all__` lists; docs/library.md shows it at work. The modules below are internal and may move. A
name is imported at its first use, so that `import kidxlib` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Final

    from kidxlib.audit.finding import Verdict
    from kidxlib.errors import (
        CheckpointError,
        CorruptIndexError,
        DamagedLogError,
        KidxError,
        LogChangedError,
        MalformedRecordsError,
        NoSegmentsError,
        OffsetOutOfRangeError,
        PublishError,
        UsageError,
    )
    from kidxlib.format.checkpoint_files import EpochEntry
    from kidxlib.index.offset import OffsetIndex
    from kidxlib.index.time import TimeIndex
    from kidxlib.index.transaction import TransactionIndex
    from kidxlib.library.audit_directory import AuditedDirectory, audit_directory
    from kidxlib.library.partition import decide_retention, open_partition
    from kidxlib.library.read import count, read, read_batches, read_records, stream_records
    from kidxlib.library.recover_directory import RecoveredDirectory, recover_directory, recover_file
    from kidxlib.log.log import LeaderEpochCache, Log
    from kidxlib.log.segment import LogSegment
    from kidxlib.lookup.seeker import Seeker
    from kidxlib.reading.who_wrote import WrittenBy, who_wrote
    from kidxlib.recovery.options import RecoverOptions
    from kidxlib.recovery.outcome import Status
    from kidxlib.recovery.recover import RecoveredSegment
    from kidxlib.retention.decide import Decisions
    from kidxlib.retention.policy import Cleanup, TopicPolicy

    __version__: str

__all__ = [
    "AuditedDirectory",
    "CheckpointError",
    "Cleanup",
    "CorruptIndexError",
    "DamagedLogError",
    "Decisions",
    "EpochEntry",
    "KidxError",
    "LeaderEpochCache",
    "Log",
    "LogChangedError",
    "LogSegment",
    "MalformedRecordsError",
    "NoSegmentsError",
    "OffsetIndex",
    "OffsetOutOfRangeError",
    "PublishError",
    "RecoverOptions",
    "RecoveredDirectory",
    "RecoveredSegment",
    "Seeker",
    "Status",
    "TimeIndex",
    "TopicPolicy",
    "TransactionIndex",
    "UsageError",
    "Verdict",
    "WrittenBy",
    "audit_directory",
    "count",
    "decide_retention",
    "open_partition",
    "read",
    "read_batches",
    "read_records",
    "recover_directory",
    "recover_file",
    "stream_records",
    "who_wrote",
]

#: The modules of these names.
_HOMES: Final = {
    "audit.finding": ("Verdict",),
    "errors": (
        "CheckpointError",
        "CorruptIndexError",
        "DamagedLogError",
        "KidxError",
        "LogChangedError",
        "MalformedRecordsError",
        "NoSegmentsError",
        "OffsetOutOfRangeError",
        "PublishError",
        "UsageError",
    ),
    "format.checkpoint_files": ("EpochEntry",),
    "index.offset": ("OffsetIndex",),
    "index.time": ("TimeIndex",),
    "index.transaction": ("TransactionIndex",),
    "library.audit_directory": (
        "AuditedDirectory",
        "audit_directory",
    ),
    "library.partition": (
        "decide_retention",
        "open_partition",
    ),
    "library.read": (
        "count",
        "read",
        "read_batches",
        "read_records",
        "stream_records",
    ),
    "library.recover_directory": (
        "RecoveredDirectory",
        "recover_directory",
        "recover_file",
    ),
    "log.log": (
        "LeaderEpochCache",
        "Log",
    ),
    "log.segment": ("LogSegment",),
    "lookup.seeker": ("Seeker",),
    "reading.who_wrote": (
        "WrittenBy",
        "who_wrote",
    ),
    "recovery.options": ("RecoverOptions",),
    "recovery.outcome": ("Status",),
    "recovery.recover": ("RecoveredSegment",),
    "retention.decide": ("Decisions",),
    "retention.policy": (
        "Cleanup",
        "TopicPolicy",
    ),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


if not TYPE_CHECKING:  # else any name would do

    def __getattr__(name: str) -> object:
        """Import a name of the library from its module (PEP 562), once."""
        if name == "__version__":
            value: object = _version()
        else:
            home = next((module for module, names in _HOMES.items() if name in names), None)
            if home is None:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def _version() -> str:
    """The version that is installed, or the checkout's; pyproject.toml is the source of both."""
    from importlib import metadata

    try:
        return metadata.version("kidx")  # also from kidx.zip
    except metadata.PackageNotFoundError:
        import tomllib
        from pathlib import Path

        try:
            project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
        except (OSError, KeyError, tomllib.TOMLDecodeError):
            project = {}  # neither
        return str(project["version"]) if project.get("name") == "kidx" else "0+unknown"
