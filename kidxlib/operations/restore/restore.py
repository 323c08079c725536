"""Plans the restore of a cluster, shows the plan, and carries it out where nobody refuses that."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from kidxlib.errors import UsageError
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.operations.backend import Backend
from kidxlib.operations.restore.apply import RESTORED, AppliedContents, Restored, apply_restore
from kidxlib.operations.restore.bucket import BucketOptions, RestoreBucket, opened_restore_bucket
from kidxlib.operations.restore.choose_replicas import leader_of, on_two_disks, sort_out_replicas
from kidxlib.operations.restore.coordinators import write_group_resets
from kidxlib.operations.restore.inventory import InventoryCache, InventoryReplica, source_brokers, take_inventory
from kidxlib.operations.restore.new_nodes import UNFINISHED, FormattedController, new_brokers, read_formatted
from kidxlib.operations.restore.restore_plan import RestoreOptions, RestorePlan, plan_restore
from kidxlib.operations.restore.restored_cluster import (
    ConfigProof,
    RestoredTopic,
    hold_lifting_arguments,
    read_proven_settings,
    unproven_settings,
)
from kidxlib.operations.restore.surviving_metadata import surviving_or_refused
from kidxlib.operations.restore.until_offsets import propose_ends, write_proposal
from kidxlib.storage.file_copy import Copied
from kidxlib.storage.location import overlapping_directory
from kidxlib.storage.lock import locked, locked_to_read
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import FIRST_MOST, MORE_IN_JSON, first_of_each_kind, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.times import show_time
from kidxlib.text.words import counted, shell_option

_DAY: Final = timedelta(days=1)
_PLAN_ID: Final = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """What is to be restored.

    Attributes:
        bucket: None: there is none.
        sources: all log dirs of one old broker or controller each, with commas between them.
        brokers: `ID=DIR[,DIR]` of each new broker.
        controllers: the new controllers' metadata log dirs.
        topic_configs: outputs of `kafka-configs --describe --all`.
        apply: the id of the plan that is to be carried out; None: only plan.
        now: for what retention would remove, and for how long ago logs were written to.
        until: the file of `--until-offsets`.
        scan_cache: the file with what was found in logs; None: all are read.
        proposes_ms: only propose ends by this time, in ms since the epoch, and write them to `until`; None: restore.
    """

    sources: Sequence[str]
    brokers: Sequence[str]
    controllers: Sequence[Path]
    topic_configs: Sequence[Path]
    options: RestoreOptions
    apply: str | None
    now: datetime
    until: Path | None = None
    proposes_ms: int | None = None
    bucket: BucketOptions | None = None
    scan_cache: Path | None = None


def restore(request: RestoreRequest, backend: Backend) -> Outcome:
    """Plan a restore, and carry it out if it is the plan that somebody has seen."""
    outcome = Outcome()
    if request.apply is not None and _PLAN_ID.fullmatch(request.apply) is None:
        raise UsageError(
            f"--apply {request.apply}: expected the id that the plan ends with, as in --apply 0123456789ab"
        )
    proven = read_proven_settings(request.topic_configs)
    brokers = new_brokers(request.brokers)
    cache = InventoryCache(request.scan_cache, request.now)
    sources = source_brokers(request.sources, request.options.topics)
    of_sources = {log_dir.path for _, broker in sources for log_dir in broker.log_dirs}
    new_dirs = {path for broker in brokers for path in broker.log_dirs if path.is_dir()}
    new_dirs |= {path.resolve() for path in request.controllers if path.is_dir()}
    with contextlib.ExitStack() as stack:
        bucket = None if request.bucket is None else stack.enter_context(opened_restore_bucket(request.bucket))
        only_read = of_sources | _bucket_directories(bucket)
        _ensure_output_elsewhere("--scan-cache", request.scan_cache, only_read | new_dirs)
        for path in sorted(of_sources):
            stack.enter_context(locked_to_read(path))
        for path in sorted(new_dirs - of_sources):
            stack.enter_context(_lock_new_dir(path, only_read, is_plan=request.apply is None))
        controllers = [_read_controller(path) for path in request.controllers]
        # Logs of an old broker without a new one are not copied, so that nothing would confirm what is in the cache.
        before = {broker.node_id: cache.found_before for broker in brokers}
        inventory = take_inventory(sources, backend.engine, request.options.topics, before)
        plan = plan_restore(request.options, inventory, brokers, controllers, proven, backend.engine, bucket)
        _write_cache(cache, plan)
        warn_of_first(inventory.known.warnings)
        _ensure_output_elsewhere("--reset-offsets", request.options.resets, only_read | new_dirs)
        warn_of_first(plan.not_known)
        _tell_plan(outcome, plan, request.now)
        applies = request.apply is not None and not plan.refusals
        if applies and request.apply != plan.id:
            raise UsageError(
                f"--apply {request.apply}: the plan is {plan.id} by now, as sources, targets or options have changed; "
                "nothing was restored: look at the plan again"
            )
        if request.options.resets is not None and not plan.refusals:
            write_group_resets(request.options.resets, plan.groups.behind)
        restored = _apply(plan, backend) if applies else None
    _tell_end(outcome, plan, None if restored is None else restored.copied)
    outcome.values.update(
        plan=plan.id,
        applied=applies,
        refused=list(plan.refusals),
        lift=_hold_lifting_commands(plan),
        disks=[{**asdict(each), "log_dirs": [*map(str, each.log_dirs)]} for each in plan.space],
        **plan.as_json(),
    )
    if restored is not None:
        outcome.values.update(restored.contents.as_json())
        outcome.warn(*first_of_each_kind(_contents_not_compared(restored.contents), FIRST_MOST, MORE_IN_JSON))
        outcome = replace(outcome, done=RESTORED)
    return replace(
        outcome,
        code=_exit_code(plan),
        counts={"partitions": len(plan.copied), "refused": len(plan.refusals), "lost": len(plan.lost)},
        bytes=plan.copied_bytes,
    )


def _write_cache(cache: InventoryCache, plan: RestorePlan) -> None:
    """Write what was found in the logs that are copied: of all others no copy would confirm it."""
    copied = {replica.copied_from.directory for replica in plan.copied}
    found = (forecast for broker in plan.inventory.brokers for forecast in broker.plan.forecasts)
    cache.write(forecast for forecast in found if forecast.directory in copied)


def _apply(plan: RestorePlan, backend: Backend) -> Restored:
    """Carry the plan out. Also in the moments before and after that, an interruption says what the disks say."""
    with interrupts.telling(lambda: _left_on_disks(plan)):
        restored = apply_restore(plan, backend)
        interrupts.tell_from_here(RESTORED)
    return restored


def _left_on_disks(plan: RestorePlan) -> str:
    """What an interruption has left of a restore, for a person; empty: nothing was begun."""
    log_dirs = [path for broker in plan.brokers for path in broker.log_dirs]
    with contextlib.suppress(OSError):
        if not any((path / UNFINISHED).exists() for path in log_dirs):
            return RESTORED if all(controller.has_changed() for controller in plan.controllers) else ""
    return "the sources are as they were: empty the new log dirs and the controllers', format them, and plan again"


def _contents_not_compared(contents: AppliedContents) -> Iterator[str]:
    for each in contents.partitions:
        if each.why:
            yield (
                f"{each.topic_partition.directory}: {each.why}; restore-check will not compare these records, and so "
                "not print what lifts the hold: compare them by hand, or restore again"
            )


def _bucket_directories(bucket: RestoreBucket | None) -> set[Path]:
    """The directory of the bucket; none if it is in an object store."""
    return {bucket.place} if bucket is not None and isinstance(bucket.place, Path) else set()


def propose(request: RestoreRequest, backend: Backend) -> Outcome:
    """The steps of `kidx restore --propose-until`: write where partitions end by a time, for somebody to look at. No
    source is written to.
    """
    assert request.until is not None and request.proposes_ms is not None
    outcome, sources = Outcome(), source_brokers(request.sources, request.options.topics)
    of_sources = [log_dir.path for _, broker in sources for log_dir in broker.log_dirs]
    with contextlib.ExitStack() as stack:
        bucket = None if request.bucket is None else stack.enter_context(opened_restore_bucket(request.bucket))
        _ensure_output_elsewhere("--until-offsets", request.until, [*of_sources, *_bucket_directories(bucket)])
        for path in of_sources:
            stack.enter_context(locked_to_read(path))
        inventory = take_inventory(sources, backend.engine, request.options.topics)
        warn_of_first(inventory.known.warnings)
        newest = surviving_or_refused(inventory.paths)
        sorted_out = sort_out_replicas(inventory, newest, request.options.topics)
        twice = {name for name, replicas in inventory.replicas.items() if any(on_two_disks(replicas))}
        whole = [each for each in sorted_out.partitions if each[0].topic_partition not in twice]
        proposed = propose_ends(whole, request.proposes_ms, backend.engine.cores)
    write_proposal(request.until, proposed)
    warnings = [text for each in proposed if (text := each.warning(request.proposes_ms)) is not None]
    earlier = sum(each.offset < each.end for each in proposed)
    outcome.line(
        f"{request.until}: the ends of {counted(len(proposed), 'partition')} by {show_time(request.proposes_ms)}, of "
        f"which {earlier} are before the ends of their logs; look at it, and give the same command without "
        "--propose-until"
    )
    outcome.first_lines("later", warnings)
    outcome.first_lines("left out", sorted_out.left_out)
    unread = [refusal.text for each in inventory.replicas.values() for refusal in leader_of(each).forecast.refusals]
    outcome.first_lines("no end", [*sorted_out.refusals, *unread])
    outcome.values.update(
        ends=[each.as_json() for each in proposed], warnings=warnings, left_out=list(sorted_out.left_out)
    )
    return replace(outcome, counts={"partitions": len(proposed)})


def _lock_new_dir(path: Path, only_read: Iterable[Path], *, is_plan: bool) -> AbstractContextManager[object]:
    """The lock of a new log dir. In what is only read, where the plan refuses it, no file of a lock is made."""
    return locked_to_read(path) if is_plan or overlapping_directory(path, only_read) is not None else locked(path)


def _ensure_output_elsewhere(option: str, path: Path | None, places: Iterable[Path]) -> None:
    """See that a file which is written lies in no log dir and in no bucket."""
    if path is not None and (found := overlapping_directory(path.resolve(), places)) is not None:
        raise UsageError(f"{option} {path}: in {found}, where nothing else is written; name a file elsewhere")


def _read_controller(path: Path) -> FormattedController:
    if not path.is_dir():
        raise UsageError(f"--controller {path}: no such directory; expected a metadata log dir that was just formatted")
    return read_formatted(path.resolve())


def _exit_code(plan: RestorePlan) -> ExitCode:
    if plan.refusals:
        return ExitCode.USAGE
    has_problems = plan.lost or plan.disagreements or plan.gaps
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK


def _tell_plan(outcome: Outcome, plan: RestorePlan, now: datetime) -> None:
    outcome.line(*_metadata_lines(plan))
    outcome.table(
        "from",
        ("broker", "log dirs", "stopped", "partitions", "bytes of logs"),
        [
            [
                str(broker.node_id) if broker.bucket is None else "",
                ", ".join(broker.shown),
                "" if broker.bucket is not None else "uncleanly" if broker.plan.broker.unclean else "cleanly",
                len(broker.replicas),
                sum(segment.log_bytes for each in broker.replicas for segment in each.forecast.simulation.segments),
            ]
            for broker in plan.inventory.brokers
        ],
        text_columns=3,
    )
    outcome.table(
        "to",
        ("broker", "log dirs", "copies", "leads", "in sync", "bytes of logs"),
        [_broker_row(plan, broker.node_id, ", ".join(map(str, broker.log_dirs))) for broker in plan.brokers],
        text_columns=2,
    )
    outcome.table(
        "disks",
        ("log dirs", "needed there", "shared by reflink", "free"),
        [
            [", ".join(map(str, each.log_dirs)), *map(decimal, (each.needed, each.shared, each.free))]
            for each in plan.space
        ],
        text_columns=1,
    )
    outcome.table(
        "topics",
        ("topic", "topic id", "settings", "partitions", "all in sync", "bytes of logs"),
        [_topic_row(plan, topic) for topic in plan.cluster.topics[:LINES_SHOWN]],
        text_columns=3,
    )
    outcome.add_more_line(len(plan.cluster.topics) - LINES_SHOWN, MORE_IN_JSON)
    behind = [each for each in plan.replicas if not each.in_sync]
    outcome.first_lines(
        "not in sync", [f"{each.topic_partition.directory} on broker {each.node_id}: {each.why}" for each in behind]
    )
    outcome.first_lines("ends", [end.text for _, end in sorted(plan.ends.by_partition.items())])
    outcome.first_lines("no end", plan.ends.without_end)
    outcome.first_lines("groups", [*plan.groups.lines])
    outcome.first_lines("cut", plan.cut)
    outcome.first_lines("left out", plan.left_out)
    outcome.first_lines("disagrees", plan.disagreements)
    outcome.first_lines("lost", plan.lost)
    outcome.first_lines("missing in a log", plan.gaps)
    outcome.first_lines(
        "not in the metadata", [f"topic {name}: restored all the same" for name in plan.not_in_metadata]
    )
    outcome.first_lines("too few replicas", plan.too_few_replicas)
    outcome.first_lines("cannot come back", [each.text for each in plan.cluster.cannot_come_back])
    outcome.first_lines("retention", [*_removed_in_first_day(plan, now)])
    outcome.first_lines("refused", plan.refusals)


def _metadata_lines(plan: RestorePlan) -> Iterator[str]:
    source = plan.cluster.source
    if source is None:
        bucket = "" if plan.bucket is None else " and the bucket"
        yield (
            f"metadata: no copy survives; it is made from the partitions' directories{bucket}, which do not say what "
            "else the cluster had"
        )
    else:
        time = "no time" if source.timestamp_ms is None else show_time(source.timestamp_ms)
        older = f"; {counted(len(source.older), 'older copy', 'older copies')}" if source.older else ""
        yield (
            f"metadata: of node {source.node_id}: {source.directory}, to offset {source.end_offset} of epoch "
            f"{source.epoch}, {time}{older}; what was changed after that is not known"
        )
        if not source.is_committed:
            yield "metadata: its last records may not have been committed; they are taken"
    yield from _bucket_lines(plan)
    yield f"cluster: {plan.cluster.cluster_id}; next producer id {plan.cluster.next_producer_id}"


def _bucket_lines(plan: RestorePlan) -> Iterator[str]:
    if (taken := plan.bucket) is None:
        return
    newest = "" if taken.newest_ms is None else f"; the newest object is of {show_time(taken.newest_ms)}"
    yield (
        f"bucket: {taken.bucket.place}: {counted(taken.segments, 'remote segment')} of "
        f"{counted(len(taken.topics), 'topic')}, {decimal(taken.log_bytes)} of logs{newest}"
    )
    made = len(taken.made)
    kept = taken.metadata_partitions - made
    yield (
        f"bucket: of the {taken.metadata_partitions} partitions of {REMOTE_LOG_METADATA_TOPIC} {kept} are kept, and "
        f"{made} made from the objects"
    )
    yield from (f"bucket: {line}" for line in taken.protection)


def _broker_row(plan: RestorePlan, node_id: int, log_dirs: str) -> list[str | int]:
    of_node = [replica for replica in plan.replicas if replica.node_id == node_id]
    return [
        str(node_id),
        log_dirs,
        sum(1 for replica in of_node if replica.source is not None),
        sum(1 for replica in of_node if replica.is_leader),
        sum(1 for replica in of_node if replica.in_sync),
        sum(replica.kept_bytes for replica in of_node),
    ]


def _topic_row(plan: RestorePlan, topic: RestoredTopic) -> list[str | int]:
    of_topic = [replica for replica in plan.replicas if replica.topic_partition.topic == topic.name]
    settings = "none is proven" if unproven_settings(topic) else "by the metadata"
    if topic.name == REMOTE_LOG_METADATA_TOPIC and any(config.proof is ConfigProof.KAFKA for config in topic.configs):
        settings = "as Kafka makes it"
    if any(config.proof is ConfigProof.DESCRIBED for config in topic.configs):
        settings = "by --topic-configs"
    in_sync = sum(1 for each in topic.partitions if set(each.in_sync) == set(each.replicas))
    copied = sum(replica.kept_bytes for replica in of_topic if replica.is_leader)
    return [topic.name, topic.topic_id, settings, len(topic.partitions), in_sync, copied]


def _removed_in_first_day(plan: RestorePlan, now: datetime) -> Iterator[str]:
    """What Kafka would remove in the first day by the settings that are proven."""
    until_ms = int((now + _DAY).timestamp() * 1000)
    leaders: dict[str, list[InventoryReplica]] = defaultdict(list)
    for leader in plan.copied_leaders:
        leaders[leader.topic_partition.topic].append(leader)
    for topic in plan.cluster.topics:
        was = {config.name: config.was for config in topic.configs}
        removed = [*_bytes_removed_by_retention(leaders[topic.name], was, until_ms)]
        if removed:
            held = "held" if plan.options.holds else "not held"
            yield (
                f"topic {topic.name}: its proven settings remove {counted(len(removed), 'segment')}, "
                f"{decimal(sum(removed))}, in the first day: {held}"
            )
    held = "no cleaner works on compacted topics" if plan.options.holds else "cleaners work on compacted topics"
    yield f"{held}; no setting of a topic holds consumers' offsets: see the steps"


def _bytes_removed_by_retention(
    leaders: Iterable[InventoryReplica], was: Mapping[str, str | None], until_ms: int
) -> Iterator[int]:
    """The bytes of each segment that goes by its age or by the size of its partition."""
    if "delete" not in (was.get("cleanup.policy") or "delete"):
        return
    ms, size = (int(was.get(name) or -1) for name in ("retention.ms", "retention.bytes"))
    for leader in leaders:
        forecast = leader.forecast
        excess = leader.kept_bytes - size if size >= 0 else 0
        for segment in forecast.simulation.segments[:-1]:
            recovery = forecast.recoveries.get(segment.base_offset)
            is_old = ms >= 0 and recovery is not None and 0 <= recovery.max_timestamp_ms < until_ms - ms
            if not is_old and excess < segment.kept_bytes:
                break
            excess -= segment.kept_bytes
            yield segment.kept_bytes


def _hold_lifting_commands(plan: RestorePlan) -> list[str]:
    return [command for topic in plan.cluster.topics for command in hold_lifting_arguments(topic)]


def _tell_end(outcome: Outcome, plan: RestorePlan, copied: Copied | None) -> None:
    if plan.refusals:
        outcome.line("nothing was restored: the refused lines say what to do")
        return
    if copied is None:
        outcome.line(
            f"nothing was restored; the same command with --apply {plan.id} does it, if the plan is still the same"
        )
    else:
        shared = f", {decimal(copied.reflinked)} shared with the sources by reflink" if copied.reflinked else ""
        outcome.line(
            f"restored: {counted(len(plan.copied), 'partition')}; {decimal(copied.written)} copied, flushed and read "
            f"back{shared}"
        )
    outcome.line(
        "steps:", *(f"  {number}. {step}" for number, step in enumerate(_steps_to_do(plan, copied is None), start=1))
    )


def _steps_to_do(plan: RestorePlan, is_to_apply: bool) -> Iterator[str]:
    yield "see that no node of the old cluster runs, or will be started again"
    if is_to_apply:
        yield f"run the same command with --apply {plan.id} --json > restored.json, and keep that file for the check"
    yield (
        "write offsets.retention.minutes=2147483647 and transactional.id.expiration.ms=2147483647 into the "
        "server.properties of all new brokers: else Kafka soon removes the offsets of groups that were idle for a week"
    )
    yield from _bucket_steps(plan)
    names = ", ".join(str(controller.log_dir) for controller in plan.controllers)
    yield (
        f"start the controllers ({names}), and no other before one of them leads: the first active controller takes "
        "the metadata from its directory; without restored metadata there the cluster begins empty"
    )
    order = ", ".join(str(broker.node_id) for broker in plan.brokers)
    yield f"start the brokers ({order}), with no client; none may say 'Found stray log dir'"
    if plan.groups.behind and plan.options.resets is not None:
        yield (
            "set the groups' offsets back, once all groups are Empty (members of old leave by their timeouts): "
            f"kafka-consumer-groups --all-groups --reset-offsets {shell_option('--from-file', plan.options.resets)} "
            "--execute"
        )
    yield (
        "before clients start: kidx restore-check restored.json --bootstrap-server HOST:PORT; it compares topics, "
        "records and the offsets of groups"
    )
    yield "set what cannot come back: ACLs, users, quotas"
    if plan.bucket is not None:
        yield "keep the bucket protected until consumers have read what matters: nothing else brings objects back"
    if plan.options.holds:
        count = len(_hold_lifting_commands(plan))
        yield f"lift the hold, topic by topic: {counted(count, 'command')} of kafka-configs, which restore-check prints"
    unknown = [topic.name for topic in plan.cluster.topics if unproven_settings(topic)]
    if unknown:
        yield (
            f"set retention and cleanup.policy of {counted(len(unknown), 'topic')} that nothing proves, as "
            f"{', '.join(unknown[:3])}: kafka-configs --alter --entity-type topics --entity-name TOPIC --add-config …"
        )


def _bucket_steps(plan: RestorePlan) -> Iterator[str]:
    """What comes before the first start with a bucket."""
    if (taken := plan.bucket) is None:
        return
    yield (
        "write into the same files: remote.log.storage.system.enable=true, the storage plugin's settings with "
        f"{taken.bucket.place}, and rlmm.config.remote.log.metadata.topic.num.partitions={taken.metadata_partitions}"
    )
    layout = "" if taken.bucket.layout.name == "local" else f" --layout {taken.bucket.layout.name}"
    places = " ".join(
        f"--tiered-metadata {shlex.quote(str(path))}" for broker in plan.brokers for path in broker.log_dirs
    )
    yield (
        f"kidx verify-tiered {shlex.quote(str(taken.bucket.place))}{layout} {places} --level full: it reads all logs, "
        "and names lost transaction indexes, without which consumers get aborted records; mend all that it calls broken"
    )
