"""`kidx who`: which producer wrote a record, and what became of its transaction."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from kidxlib.commands.command import CommandOptions, kidx_command, open_nothing, parameter
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.reading.who_wrote import WrittenBy

#: How many characters of a key, a value or a header are shown.
_SHOWN: Final = 100
_NO_PRODUCER: Final = -1


@dataclass(frozen=True, kw_only=True)
class WhoCommand(CommandOptions):
    """Which record: the one at an offset of a partition in some log dirs."""

    partition: str = parameter(click.argument("partition", metavar="TOPIC-PARTITION"))
    offset: int = parameter(click.argument("offset", metavar="OFFSET", type=IntegerRange(0, 2**63 - 1)))
    directories: tuple[str, ...] = parameter(click.argument("directories", metavar="DIR…", nargs=-1, required=True))

    @property
    def writes(self) -> bool:
        return False


def run_who(request: WhoCommand, _: None) -> Outcome:
    """Say who wrote the record at OFFSET of a partition: the producer, its transactional id, the batch, and whether the
    transaction was committed or aborted, or is open.

    DIR… are log dirs or partitions' directories. The transactional id stands in one partition of __transaction_state,
    which may be in another log dir, or on another broker: name all log dirs that you have.

    Exit codes: 0 said; 2 wrong options or inputs, or no record has the offset; 3 said, but not all is known, which
    notes say; 1 failed.
    """
    from kidxlib.reading.who_wrote import who_wrote

    written = who_wrote(list(request.directories), request.partition, request.offset)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if written.notes else ExitCode.OK,
        counts={"notes": len(written.notes)},
        bytes=written.batch["bytes"],
    )
    outcome.values.update(_as_json(written))
    outcome.line(f"{written.topic}-{written.partition}, offset {written.offset}")
    outcome.line(*(f"  {name:<16} {text}" for name, text in _lines(written)))
    return outcome


def _lines(written: WrittenBy) -> Iterator[tuple[str, str]]:
    batch, record = written.batch, written.record
    if record is not None:
        yield "timestamp", _time(record["timestamp"])
        for name in ("key", "value"):
            yield name, _bytes(record[name])
        for header in record["headers"] or ():
            yield "header", f"{header['key']}: {_bytes(header['value'])}"
    first = "?" if batch["base_offset"] is None else batch["base_offset"]
    records = "" if batch["records"] is None else f", {counted(batch['records'], 'record')}"
    yield "batch", f"offsets {first} to {batch['last_offset']}{records}, codec {batch['codec']}"
    yield "log", f"{written.log_path}, byte {batch['position']}, {counted(batch['bytes'], 'byte')}"
    if written.producer_id == _NO_PRODUCER:
        yield "producer", "none: neither transactional nor idempotent"
    else:
        yield "producer", f"{written.producer_id} of epoch {batch['producer_epoch']}{_sequence(batch)}"
    if written.transactional_id is not None:
        yield "transactional id", written.transactional_id
    yield "transaction", _outcome(written)
    for note in written.notes:
        yield "note", note


def _sequence(batch: dict[str, Any]) -> str:
    return "" if batch["base_sequence"] < 0 else f", sequence {batch['base_sequence']} to {batch['last_sequence']}"


def _outcome(written: WrittenBy) -> str:
    from kidxlib.reading.who_wrote import TransactionOutcome

    match written.outcome:
        case TransactionOutcome.COMMITTED | TransactionOutcome.ABORTED:
            return f"{written.outcome}, by the marker at offset {written.marker_offset}"
        case TransactionOutcome.OPEN:
            return "open: no marker of the producer follows"
        case TransactionOutcome.MARKER:
            return f"this is the marker that ends one: {written.marker}; consumers do not get it"
        case TransactionOutcome.UNKNOWN:
            return "unknown: the log is damaged, or a part of it missing, before a marker of the producer"
        case TransactionOutcome.NONE:
            return "none"


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bytes(content: bytes | None) -> str:
    """The first characters of the bytes, as text or else in base64, and how many bytes there are."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = f"base64 {base64.b64encode(content[:_SHOWN]).decode()}"
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{shown}  ({counted(len(content), 'byte')})"


def _as_json(written: WrittenBy) -> dict[str, Any]:
    """The record as JSON. Keys, values and headers that are no text are base64, under names that end in `_base64`."""
    content = asdict(written)
    record = content["record"]
    if record is not None:
        record["timestamp"] = _time(record["timestamp"])
        for name in ("key", "value"):
            record |= _text(name, record[name])
        record["headers"] = [
            {"key": header["key"], **_text("value", header["value"])} for header in record["headers"] or ()
        ]
    return content


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if content is None else content.decode()}
    except UnicodeDecodeError:
        assert content is not None
        return {name: None, f"{name}_base64": base64.b64encode(content).decode()}


who = kidx_command("who", WhoCommand, run_who, opened=open_nothing, reports_as="who")
