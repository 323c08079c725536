"""Partitions batch by batch, for Hypothesis: logs as brokers write them, and everything that can be wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.v2_records import record, sized, varint

ABORT: Final = layouts.CONTROL_TYPE_ABORT
COMMIT: Final = layouts.CONTROL_TYPE_COMMIT

_DELETE_HORIZON: Final = 0x40
_TRANSACTION_MARKER: Final = layouts.ATTRIBUTE_TRANSACTIONAL | layouts.ATTRIBUTE_CONTROL

_INT32_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's logs, and what they are to be recovered with.

    Attributes:
        logs: each segment's base offset and log, in order.
        options: of the recovery.
        faults: names of what was done to them.
        batches: what the logs were made of.
    """

    logs: tuple[tuple[int, bytes], ...] = field(repr=False)
    options: RecoverOptions
    faults: tuple[str, ...] = ()
    batches: tuple[tuple[Batch, ...], ...] = field(default=(), repr=False)

    def description(self) -> str:
        """A line per segment and batch, for whoever reads a failing example."""
        lines = []
        for (base_offset, log), batches in zip(self.logs, self.batches, strict=True):
            lines.append(f"segment {base_offset}: {len(log)} bytes")
            for batch in batches:
                described = [f"{f.name}={getattr(batch, f.name)}" for f in fields(batch) if f.repr]
                body = batch.body.hex() if len(batch.body) < 40 else f"{len(batch.body)} bytes"
                lines.append("  " + ", ".join([*described, f"body={body}"]))
        return "\n".join(lines)


def marker_key(control_type: int, version: int = 0) -> bytes:
    """The key of a control record."""
    return version.to_bytes(2, signed=True) + control_type.to_bytes(2, signed=True)


def marker_value(coordinator_epoch: int = 0, version: int = 0) -> bytes:
    """The value of an end-transaction marker."""
    return version.to_bytes(2, signed=True) + coordinator_epoch.to_bytes(4, signed=True)


def marker_batch(
    producer_id: int,
    body: bytes | None = None,
    *,
    control_type: int = ABORT,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp_delta: int = 0,
) -> Batch:
    """A control batch of 78 bytes as a transaction coordinator writes it.

    Args:
        body: its one record, if not that of a sound marker.
    """
    return Batch(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=0,
        base_timestamp=0,
        attributes=_TRANSACTION_MARKER,
        body=record(marker_key(control_type), marker_value(coordinator_epoch), timestamp_delta=timestamp_delta)
        if body is None
        else body,
    )


def data_batch(
    producer_id: int, *, producer_epoch: int = 0, base_sequence: int = 0, records: int = 1, transactional: bool = False
) -> Batch:
    """A producer's batch. Recovery looks at no record of it, so it has none."""
    return Batch(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        offset_step=records,
        last_offset_delta=records - 1,
        records=records,
        attributes=layouts.ATTRIBUTE_TRANSACTIONAL if transactional else 0,
    )


# ---- sound partitions ----

#: Ids that share a bucket of Java's hash maps, or have high bits.
_PRODUCER_IDS: Final = (0, 1, 17, 33, 1000, 2**32 + 1, _LONG_MAX)
#: No sound partition has this producer: faults bring it along.
_STRANGER: Final = 4242

_KINDS: Final = (
    *["transaction"] * 7,
    *["abort"] * 3,
    *["commit"] * 2,
    *["idempotent"] * 3,
    *["plain"] * 2,
    *["roll"] * 3,
    "message",
    "emptied",
    "emptied marker",
    "new leader",
    "new epoch",
    "gap",
    "large",
)
#: What happens, to which producer, and three numbers to vary it by.
_STEPS: Final = st.tuples(
    st.sampled_from(_KINDS), st.integers(0, 3), st.integers(0, 7), st.integers(-40, 60), st.integers(0, 63)
)

_Step: TypeAlias = tuple[str, int, int, int, int]


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int
    sequence: int

    def take_sequence(self, records: int) -> int:
        """The base sequence of its next batch; it wraps after 2³¹−1, and one without stays without."""
        base = self.sequence
        if base >= 0:
            self.sequence = (base + records) % 2**31
        return base


@dataclass(slots=True)
class _Broker:
    """Turns steps into batches: transactions of three producers, and one that is idempotent only.

    Attributes:
        bump_epochs: whether a marker raises the producer's epoch, as with transactions of version 2.
    """

    producers: list[_Producer]
    clock: int
    leader_epoch: int
    bump_epochs: bool
    segments: list[list[Batch]] = field(default_factory=lambda: [[]])
    gap: int = 0

    def take(self, step: _Step) -> None:
        kind, number, few, clock_step, variety = step
        producer = self.producers[3 if kind == "idempotent" else number % 3]
        match kind:
            case "roll":
                if len(self.segments) < 4:
                    self.segments.append([])
            case "new leader":
                self.leader_epoch = (-1, 0, self.leader_epoch - 1, self.leader_epoch + 1)[number]
            case "new epoch":
                producer.epoch = (producer.epoch + (1, 1, -1, 300)[number] + 2**15) % 2**16 - 2**15
                producer.sequence = (0, 0, -1, _INT32_MAX - 1)[few % 4]
            case "gap":
                self.gap = few * 50
            case _:
                self._write(self._batch(kind, producer, few, variety), clock_step, variety)

    def _batch(self, kind: str, producer: _Producer, few: int, variety: int) -> Batch:
        records = 1 + few
        match kind:
            case "abort" | "commit":
                producer.epoch = min(producer.epoch + self.bump_epochs, 2**15 - 1)
                return marker_batch(
                    producer.producer_id,
                    control_type=ABORT if kind == "abort" else COMMIT,
                    producer_epoch=producer.epoch,
                    coordinator_epoch=few // 2 - 1,
                    timestamp_delta=variety % 3 - 1,
                )
            case "emptied marker":
                return replace(marker_batch(producer.producer_id, b"", producer_epoch=producer.epoch), records=0)
            case "message":
                return Batch(magic=few % 2, attributes=variety % 4)
            case "plain" | "large":
                attributes = variety % 5
                body = FILLER[: 4100 if kind == "large" else 10 * variety]
                return replace(data_batch(-1, records=records), attributes=attributes, base_sequence=-1, body=body)
            case "emptied":
                records_kept, body = 0, b""
            case _:
                records_kept, body = max(1, records - variety % 3), FILLER[: 10 * variety]
        transactional = kind != "idempotent"
        batch = data_batch(
            producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.take_sequence(records),
            records=records,
            transactional=transactional,
        )
        return replace(batch, records=records_kept, body=body, attributes=batch.attributes | (variety % 5))

    def _write(self, batch: Batch, clock_step: int, variety: int) -> None:
        """With this broker's clock, leader epoch and gap, and now and then another type of timestamp."""
        self.clock += clock_step
        changes: dict[str, Any] = {
            "timestamp": self.clock,
            "leader_epoch": self.leader_epoch,
            "offset_step": batch.offset_step + self.gap,
        }
        self.gap = 0
        if batch.magic >= layouts.MAGIC_V2:
            horizon = variety == 62
            changes["base_timestamp"] = self.clock + 1_000_000 if horizon else self.clock - variety % 2
            changes["attributes"] = batch.attributes | (layouts.ATTRIBUTE_LOG_APPEND_TIME if variety % 8 == 7 else 0)
            changes["attributes"] |= _DELETE_HORIZON if horizon else 0
        self.segments[-1].append(replace(batch, **changes))


@dataclass(slots=True)
class _Plan:
    """A partition that is being made: what faults work on.

    Attributes:
        damage: what is done to the bytes of a segment's log, by its number.
    """

    segments: list[list[Batch]]
    base_offset: int
    interval_bytes: int
    max_index_bytes: int = MAX_INDEX_BYTES_DEFAULT
    damage: dict[int, Callable[[bytes], bytes]] = field(default_factory=dict)

    def partition(self, faults: Sequence[str]) -> Partition:
        logs = []
        base_offset = self.base_offset
        for number, batches in enumerate(self.segments):
            log = b"".join(encode(base_offset, batches))
            logs.append((base_offset, self.damage.get(number, bytes)(log)))
            # A fault's leap does not count: the next segment starts where this one would have ended without.
            base_offset += max(1, sum(min(max(batch.offset_step, 0), 1000) for batch in batches))
        return Partition(
            logs=tuple(logs),
            options=RecoverOptions(interval_bytes=self.interval_bytes, max_index_bytes=self.max_index_bytes),
            faults=tuple(faults),
            batches=tuple(map(tuple, self.segments)),
        )


@st.composite
def _plans(draw: st.DrawFn) -> _Plan:
    ids = draw(st.sampled_from([_PRODUCER_IDS[:4], _PRODUCER_IDS[2:6], _PRODUCER_IDS[3:]]))
    sequence = draw(st.sampled_from([0, 0, _INT32_MAX - 3, -1]))
    broker = _Broker(
        producers=[_Producer(producer_id, epoch, sequence) for epoch, producer_id in enumerate(ids)],
        clock=draw(st.sampled_from([1_700_000_000_000, 100, layouts.NO_TIMESTAMP, -(2**40)])),
        leader_epoch=draw(st.sampled_from([0, 5, -1])),
        bump_epochs=draw(st.booleans()),
    )
    for step in draw(st.lists(_STEPS, min_size=draw(st.sampled_from([0, 14, 14, 20])), max_size=40)):
        broker.take(step)
    return _Plan(
        segments=broker.segments,
        base_offset=draw(st.sampled_from([0, 0, 7, 2**31 + 5, 2**62])),
        interval_bytes=draw(st.sampled_from([INTERVAL_BYTES_DEFAULT, 500, 150, 0])),
    )


# ---- faults ----

_Apply: TypeAlias = Callable[[st.DrawFn, _Plan], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong with a partition, or odd.

    Attributes:
        apply: does it.
        meets: how a segment ends that has it, at least now and then: `ok`, or the reason.
    """

    apply: _Apply
    meets: str


def _segment(draw: st.DrawFn, plan: _Plan, least: int = 1) -> tuple[list[Batch], int]:
    """The batches of a segment, and its number. It has at least that many."""
    number = draw(st.integers(0, len(plan.segments) - 1))
    batches = plan.segments[number]
    while len(batches) < least:
        batches.append(data_batch(-1))
    return batches, number


#: Of the batches that faults bring along; most often none, so that other producers' leaders go on.
_LEADER_EPOCHS: Final = st.sampled_from([layouts.NO_LEADER_EPOCH] * 3 + [2, 7])


def _under(leader_epoch: int, batches: Sequence[Batch]) -> list[Batch]:
    """The batches with this leader epoch, where they have none of their own."""
    return [replace(b, leader_epoch=leader_epoch) if b.leader_epoch < 0 else b for b in batches]


def _change(**changes: st.SearchStrategy[Any]) -> _Apply:
    """Some batch has other fields."""
    strategy = st.fixed_dictionaries(changes)

    def apply(draw: st.DrawFn, plan: _Plan) -> None:
        batches, _ = _segment(draw, plan)
        place = draw(st.integers(0, len(batches) - 1))
        batches[place] = replace(batches[place], **draw(strategy))

    return apply


def _insert(*sections: st.SearchStrategy[Sequence[Batch]], options: Mapping[str, int] | None = None) -> _Apply:
    """Somewhere there are more batches: those of the sections, each after the one before, but not always at once."""

    def apply(draw: st.DrawFn, plan: _Plan) -> None:
        first = draw(st.integers(0, len(plan.segments) - 1))
        place = draw(st.integers(0, len(plan.segments[first])))
        for number, section in enumerate(sections):
            if number and draw(st.booleans()) and first + 1 < len(plan.segments):
                first, place = first + 1, 0
            batches = draw(section)
            plan.segments[first][place:place] = _under(draw(_LEADER_EPOCHS), batches)
            place += len(batches)
        for option, value in (options or {}).items():
            setattr(plan, option, value)

    return apply


def _damage(*damages: Callable[[bytes], bytes]) -> _Apply:
    """Something happened to the bytes of a log."""

    def apply(draw: st.DrawFn, plan: _Plan) -> None:
        _, number = _segment(draw, plan)
        plan.damage[number] = draw(st.sampled_from(damages))

    return apply


def _cut(length: int) -> Callable[[bytes], bytes]:
    return lambda log: log[:-length]


def _tail(tail: bytes) -> Callable[[bytes], bytes]:
    return lambda log: log + tail


def _marker(*bodies: bytes, records: Sequence[int] = (1,)) -> _Apply:
    """A producer's control batch with one of these bodies, with a transaction open or not, last in its log or not."""
    opening = st.sampled_from([[data_batch(_STRANGER, transactional=True)], []])
    counts = st.sampled_from(records)

    @st.composite
    def markers(draw: st.DrawFn) -> list[Batch]:
        return [replace(marker_batch(_STRANGER, draw(st.sampled_from(bodies))), records=draw(counts))]

    return _insert(opening, markers(), st.sampled_from([[data_batch(_STRANGER, transactional=True)], []]))


def _any(*batches: Batch) -> st.SearchStrategy[Sequence[Batch]]:
    return st.sampled_from([[batch] for batch in batches])


def _marker_with(key: bytes | None, value: bytes | None = b"\0\0\0\0\0\7") -> bytes:
    return record(key, value)


def _single_batch(draw: st.DrawFn, plan: _Plan) -> None:
    del _segment(draw, plan)[0][1:]


def _interval_of_a_batch(draw: st.DrawFn, plan: _Plan) -> None:
    """The rule is strict: an index point comes after more bytes than the interval, not after as many."""
    batches, _ = _segment(draw, plan, 3)
    place = draw(st.integers(0, len(batches) - 2))
    plan.interval_bytes = len(batches[place].encode(0)) - draw(st.integers(0, 1))


def _offset_not_increasing(draw: st.DrawFn, plan: _Plan) -> None:
    plan.interval_bytes = 0
    batches, _ = _segment(draw, plan, 3)
    place = draw(st.integers(2, len(batches) - 1))
    batches[place] = replace(batches[place], offset_step=draw(st.integers(-1, 0)))


def _time_index_offset_decreasing(draw: st.DrawFn, plan: _Plan) -> None:
    """The last batch has the largest timestamp, and an offset below the last entry's."""
    plan.interval_bytes = 1000
    batches, _ = _segment(draw, plan)
    batches += [
        Batch(body=FILLER[:2000]),
        Batch(timestamp=2**41),
        Batch(timestamp=2**42, offset_step=draw(st.sampled_from([-1, -3]))),
    ]


def _offset_index_full(draw: st.DrawFn, plan: _Plan) -> None:
    plan.interval_bytes, plan.max_index_bytes = 0, 24
    batches, _ = _segment(draw, plan, 6)
    batches[:] = [replace(batch, timestamp=layouts.NO_TIMESTAMP) for batch in batches]


def _time_index_full(draw: st.DrawFn, plan: _Plan) -> None:
    plan.interval_bytes, plan.max_index_bytes = 0, draw(st.sampled_from([12, 24]))
    _segment(draw, plan, 5)


def _repeat_a_batch(draw: st.DrawFn, plan: _Plan) -> None:
    """The same bytes again."""
    batches, _ = _segment(draw, plan)
    place = draw(st.integers(0, len(batches) - 1))
    batches.insert(place + 1, replace(batches[place], offset_step=0))


_SOUND: Final = _marker_with(marker_key(ABORT))
_IN_TRANSACTION: Final = _any(data_batch(_STRANGER, transactional=True, records=3))

FAULTS: Final[Mapping[str, Fault]] = {
    "none": Fault(lambda draw, plan: None, "ok"),
    "empty segment": Fault(lambda draw, plan: _segment(draw, plan)[0].clear(), "ok"),
    "single batch": Fault(_single_batch, "ok"),
    "interval as long as a batch": Fault(_interval_of_a_batch, "ok"),
    # the end of the file
    "up to 17 bytes more": Fault(
        _damage(_tail(b"\1"), _tail(FILLER[:16]), _tail(bytes(17)), _tail(FILLER[:17])), "trailing-bytes"
    ),
    "garbage at the end": Fault(
        _damage(_tail(FILLER[:18]), _tail(FILLER[:61]), _tail(FILLER[7:307])), "batch-overruns-file"
    ),
    "zeros at the end": Fault(_damage(_tail(bytes(18)), _tail(bytes(4000))), "size-too-small"),
    "cut within a batch": Fault(_damage(_cut(1), _cut(9), _cut(30)), "batch-overruns-file"),
    # headers
    "size too small": Fault(_change(size=st.sampled_from([13, 0, -1, -_INT32_MAX - 1])), "size-too-small"),
    "size past the end": Fault(_change(size=st.sampled_from([10**6, _INT32_MAX])), "batch-overruns-file"),
    "size off by one": Fault(_change(size=st.sampled_from([49, 50])), "crc-mismatch"),
    "v2 size below a header": Fault(_change(magic=st.just(2), size=st.sampled_from([14, 15, 48])), "batch-too-small"),
    "v1 size off by one": Fault(_change(magic=st.integers(0, 1), size=st.sampled_from([14, 15, 48])), "crc-mismatch"),
    "v2 batch too small": Fault(_change(magic=st.just(2), bytes_kept=st.integers(26, 60)), "batch-too-small"),
    "checksum": Fault(_change(crc_error=st.sampled_from([1, 2**31, 2**32 - 1])), "crc-mismatch"),
    "magic 3 or more": Fault(_change(magic=st.sampled_from([3, 62, 63, 127])), "ok"),
    "magic below 0": Fault(_change(magic=st.sampled_from([-1, -128])), "ok"),
    "odd timestamp": Fault(_change(timestamp=st.sampled_from([_LONG_MAX, -_LONG_MAX - 1, -1, 0])), "ok"),
    "odd attributes": Fault(
        _change(attributes=st.integers(-128, 127).map(lambda bits: bits & ~layouts.ATTRIBUTE_CONTROL)), "ok"
    ),
    "odd record count": Fault(_change(records=st.sampled_from([0, -1, _INT32_MAX])), "ok"),
    "odd leader epoch": Fault(_change(leader_epoch=st.sampled_from([-2, 3, 3, 9, _INT32_MAX])), "ok"),
    "odd last offset delta": Fault(
        _change(last_offset_delta=st.sampled_from([-1, 3, _INT32_MAX, -_INT32_MAX - 1])), "ok"
    ),
    # offsets
    "offset overflow": Fault(
        _change(offset_step=st.sampled_from([2**31 + 2**20, 2**40, -(2**40), 2**63])), "offset-overflow"
    ),
    "offsets going back": Fault(_change(offset_step=st.sampled_from([0, -1, -3, -30])), "ok"),
    "a batch twice": Fault(_repeat_a_batch, "ok"),
    "offset not increasing": Fault(_offset_not_increasing, "offset-not-increasing"),
    "time index offset decreasing": Fault(_time_index_offset_decreasing, "time-index-offset-decreasing"),
    "offset index full": Fault(_offset_index_full, "offset-index-full"),
    "time index full": Fault(_time_index_full, "time-index-full"),
    "leader epochs that begin together": Fault(
        _insert(
            st.just(
                [
                    Batch(offset_step=5, leader_epoch=1000),
                    Batch(offset_step=0, leader_epoch=1001),
                    Batch(offset_step=3, leader_epoch=1002),
                ]
            ),
            st.sampled_from([[], [Batch(offset_step=-5, leader_epoch=1003)]]),
            options={"interval_bytes": _INT32_MAX},
        ),
        "ok",
    ),
    "leader epoch from a negative offset": Fault(
        _insert(
            _any(Batch(last_offset_delta=_INT32_MAX, leader_epoch=_INT32_MAX)),
            # It is over before this, which would be another failure.
            st.sampled_from([[], [data_batch(_STRANGER, transactional=True), data_batch(_STRANGER)]]),
            options={"base_offset": 0},
        ),
        "negative-leader-epoch-offset",
    ),
    # producers
    "odd producer id": Fault(_change(producer_id=st.sampled_from([-2, -_LONG_MAX - 1])), "ok"),
    "odd producer epoch": Fault(
        _insert(_any(*[data_batch(_STRANGER, producer_epoch=epoch) for epoch in (-1, -2, 2**15 - 1, -(2**15))])), "ok"
    ),
    "odd sequence": Fault(
        _insert(
            _any(
                *[
                    replace(data_batch(_STRANGER, base_sequence=sequence), last_offset_delta=delta)
                    for sequence in (-1, -2, -_INT32_MAX - 1, 0, 5, _INT32_MAX - 1, _INT32_MAX)
                    for delta in (0, 1, 9, -1, -9, _INT32_MAX, -_INT32_MAX - 1)
                ]
            )
        ),
        "ok",
    ),
    "six batches of a producer": Fault(
        _insert(st.just([data_batch(_STRANGER, base_sequence=sequence) for sequence in range(6)])), "ok"
    ),
    "many producers": Fault(
        _insert(st.just([data_batch(_STRANGER + n % 600 * 2048) for n in range(900)])),  # whose ids end alike
        "ok",
    ),
    "many leader epochs": Fault(_insert(st.just([Batch(leader_epoch=epoch, body=b"") for epoch in range(600)])), "ok"),
    "batch without transaction in one": Fault(
        _insert(
            _IN_TRANSACTION,
            _any(data_batch(_STRANGER)),
            # It is over before this, which would be another failure.
            st.sampled_from([[Batch(last_offset_delta=_INT32_MAX, leader_epoch=_INT32_MAX)], []]),
            options={"base_offset": 0},
        ),
        "non-transactional-in-transaction",
    ),
    "transactions with the same first offset": Fault(
        _insert(
            st.just(
                [
                    data_batch(_STRANGER, transactional=True),
                    replace(data_batch(_STRANGER + 1, transactional=True), offset_step=0),
                ]
            ),
            st.permutations([marker_batch(_STRANGER), marker_batch(_STRANGER + 1, control_type=COMMIT)]),
            options={"interval_bytes": _INT32_MAX},
        ),
        "transaction-not-started",
    ),
    "a transaction over another's first offset": Fault(
        _insert(
            st.just([data_batch(_STRANGER, transactional=True), data_batch(_STRANGER + 1, transactional=True)]),
            st.just([marker_batch(_STRANGER)]),
            st.just(
                [
                    replace(data_batch(_STRANGER, transactional=True), offset_step=-1),
                    marker_batch(_STRANGER, control_type=COMMIT),
                    marker_batch(_STRANGER + 1),
                ]
            ),
            options={"interval_bytes": _INT32_MAX},
        ),
        "transaction-not-started",
    ),
    "aborts going back": Fault(
        _insert(
            st.just([data_batch(_STRANGER, transactional=True, records=9), marker_batch(_STRANGER)]),
            st.just([replace(data_batch(_STRANGER, transactional=True), offset_step=-5)]),
            _any(marker_batch(_STRANGER), replace(marker_batch(_STRANGER), offset_step=5)),
            options={"interval_bytes": _INT32_MAX},
        ),
        "abort-not-increasing",
    ),
    "transaction from a negative offset": Fault(
        _insert(
            _any(*[replace(data_batch(_STRANGER, transactional=True), last_offset_delta=10**6 + n) for n in range(2)]),
            _any(marker_batch(_STRANGER), marker_batch(_STRANGER, control_type=COMMIT)),
            options={"base_offset": 0},
        ),
        "ok",
    ),
    # control batches
    "control batch without a producer": Fault(
        _insert(_any(*[marker_batch(-1, body) for body in (record(marker_key(2), b""), FILLER[:30], b"")])), "ok"
    ),
    "odd but sound marker": Fault(
        _marker(
            _marker_with(marker_key(ABORT, 1)),
            _marker_with(marker_key(COMMIT), marker_value(7, 9)),
            _marker_with(marker_key(ABORT) + b"more"),
            _marker_with(marker_key(ABORT), marker_value(-3) + b"more"),
            record(marker_key(ABORT), marker_value(), timestamp_delta=-77, offset_delta=5),
            record(marker_key(ABORT), marker_value(), headers=[(b"name", b"content"), (b"", None)]),
            b"\x22\xff" + _SOUND[2:],
            b"\xa2\0" + _SOUND[1:],
        ),
        "ok",
    ),
    "marker that spans offsets": Fault(
        _insert(_IN_TRANSACTION, _any(replace(marker_batch(_STRANGER), offset_step=4, last_offset_delta=3))), "ok"
    ),
    "marker without the transactional attribute": Fault(
        _insert(_IN_TRANSACTION, _any(replace(marker_batch(_STRANGER), attributes=layouts.ATTRIBUTE_CONTROL))), "ok"
    ),
    "empty control batch": Fault(_marker(b"", FILLER[:20], records=[0]), "ok"),
    "marker key of a negative version": Fault(
        _marker(_marker_with(marker_key(ABORT, -1)), _marker_with(marker_key(9, -(2**15)))), "invalid-control-record"
    ),
    "marker value of a negative version": Fault(
        _marker(_marker_with(marker_key(COMMIT), marker_value(0, -1)), _marker_with(marker_key(ABORT), b"\xff\xff")),
        "invalid-control-record",
    ),
    "marker of another type": Fault(
        _marker(*[_marker_with(marker_key(control_type)) for control_type in (2, 3, 4, 5, 6, 7, -1, 256)]),
        "unknown-control-type",
    ),
    "marker without a key": Fault(_marker(_marker_with(None)), "malformed-control-record"),
    "marker with a short key": Fault(
        _marker(*[_marker_with(bytes(length)) for length in range(4)]), "invalid-control-record"
    ),
    "marker without a value": Fault(_marker(_marker_with(marker_key(ABORT), None)), "malformed-control-record"),
    "marker with a short value": Fault(
        _marker(*[_marker_with(marker_key(ABORT), bytes(length)) for length in range(6)]), "malformed-control-record"
    ),
    "marker of a length that is too small": Fault(
        _marker(*[record(marker_key(ABORT), marker_value(), wrong_length=-less) for less in (1, 2, 17, 20)]),
        "invalid-control-record",
    ),
    "marker of a length that is too large": Fault(
        _marker(*[record(marker_key(ABORT), marker_value(), wrong_length=more) for more in (1, 60, _INT32_MAX - 20)]),
        "invalid-control-record",
    ),
    "marker with a wrong number of headers": Fault(
        _marker(*[record(marker_key(ABORT), marker_value(), header_count=count) for count in (-1, 1, 300, _INT32_MAX)]),
        "invalid-control-record",
    ),
    "marker with bad headers": Fault(
        _marker(
            record(marker_key(ABORT), marker_value(), headers=[(b"name", b"content")], header_count=2),
            *[sized(_SOUND[1:-1] + varint(1) + header) for header in (varint(-1), varint(0) + varint(9), b"\x0aname")],
        ),
        "invalid-control-record",
    ),
    "marker with a length that does not end": Fault(
        _marker(b"\xff" * 16, b"\xff" * 5 + b"\0"), "malformed-control-record"
    ),
    "marker with a number that does not end": Fault(
        _marker(
            b"\x22\0" + b"\xff" * 16,
            b"\x22\0\0" + b"\xff" * 15,
            b"\x22\0\0\0" + b"\xff" * 14,
            b"\x22\0\0\0\x08\0\0\0\0" + b"\xff" * 9,
            b"\x22\0" + b"\xff" * 9 + b"\1" + bytes(6),
            b"\x22\0" + b"\xff" * 9 + b"\3" + bytes(6),
            b"\x22\0\0" + b"\xff" * 4 + b"\x1f" + bytes(10),
        ),
        "invalid-control-record",
    ),
    "marker of garbage": Fault(
        _marker(*[FILLER[start : start + 17] for start in range(0, 340, 17)]), "invalid-control-record"
    ),
    "marker that ends early": Fault(
        _marker(*[_SOUND[:length] for length in range(len(_SOUND))]), "invalid-control-record"
    ),
    "marker with bytes after it": Fault(_marker(_SOUND + b"\0", _SOUND + _SOUND), "invalid-control-record"),
    "control batch with a negative count": Fault(
        _marker(_SOUND, b"", records=[-1, -_INT32_MAX - 1]), "invalid-control-record"
    ),
    "compressed control batch": Fault(
        _insert(
            _any(*[replace(marker_batch(_STRANGER), attributes=_TRANSACTION_MARKER | codec) for codec in (1, 4, 7)])
        ),
        "compressed-control-batch",
    ),
    "control batch of 64 KiB": Fault(
        _marker(record(marker_key(ABORT), marker_value() + bytes(2**16))), "control-batch-too-large"
    ),
    "control batch of more records": Fault(
        _marker(_SOUND, _SOUND + b"garbage", _SOUND + _SOUND, records=[2, _INT32_MAX]), "ok"
    ),
}


def partitions_with(fault: str) -> st.SearchStrategy[Partition]:
    """Sound partitions with several producers' transactions, and this one fault."""

    @st.composite
    def strategy(draw: st.DrawFn) -> Partition:
        plan = draw(_plans())
        FAULTS[fault].apply(draw, plan)
        return plan.partition([fault])

    return strategy()


@st.composite
def wild_partitions(draw: st.DrawFn) -> Partition:
    """Partitions with several faults, most of which are met."""
    plan = draw(_plans())
    faults = draw(st.lists(st.sampled_from(sorted(FAULTS)), min_size=2, max_size=6, unique=True))
    for fault in faults:
        FAULTS[fault].apply(draw, plan)
    if draw(st.integers(0, 9)) == 0:
        plan.interval_bytes = draw(st.sampled_from([0, 26, 77, _INT32_MAX]))
        plan.max_index_bytes = draw(st.sampled_from([12, 20, 24, 100, 400]))
    return plan.partition(faults)
