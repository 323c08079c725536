"""What a deletion may rest on where a policy and the cluster's metadata say something of the same topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.retention.policy import NOTHING_KNOWN, Cleanup, Origin, Policy, TopicConfig
from kidxlib.retention.policy_file import read_retention_policies
from kidxlib.run.retention_configs import RetentionConfigs
from kidxlib.terminal.options import MetadataOptions
from tests.support.cluster_metadata import (
    ID_OF_T,
    OTHER_ID,
    config,
    data,
    leader_change,
    log_dir_of_t,
    snapshot,
    topic,
    write_copy,
)

_BLANKET = "cleanup.policy = 'delete'\nretention.ms = 7\nretention.bytes = -1\nremote.storage.enable = false\n"
_OF_T = f"[[topic]]\nmatch = 't'\n{_BLANKET}"
_DESCRIBED = '{{"t": {{"cleanup.policy": "compact", "retention.ms": {}, "retention.bytes": -1}}}}'


def _configured(
    directory: Path, *settings: tuple[str, str], is_there: bool = True, uncommitted: Sequence[bytes] = (), **ids: Any
) -> Any:
    """What the metadata says of `t`, with it and these settings in a snapshot, and what may not be committed behind."""
    log_dir = log_dir_of_t(directory / "log-dir", has_metadata=False)
    of_t = [topic("t", ID_OF_T), *(config("t", name, value) for name, value in settings)] if is_there else []
    log = leader_change(10, [1, 2])
    if uncommitted:
        log += data(11, uncommitted, 1_000)
    write_copy(log_dir / METADATA_DIRECTORY, {10: log}, {(10, 1): snapshot(of_t, 1_000)})
    rows = pa.table({"source": ["s"], "topic": ["t"], "topic_id": [ids.get("topic_id", ID_OF_T)]})
    return RetentionConfigs.from_metadata(MetadataOptions(), {"s": str(log_dir)}, ["s"], lambda: rows)


def _policy(directory: Path, text: str) -> Policy:
    (directory / "policy").write_text(text)
    [policy] = read_retention_policies(directory / "policy")
    return policy


def _completed(configured: RetentionConfigs, policy: Policy, *, deletes: bool) -> tuple[TopicConfig, list[str]]:
    own = {"t": {policy.name: policy.of_topic("t")}}
    described = [policy.name] if policy.described else []
    completed = configured.complete(own, deletes=deletes, described=described)
    return completed["t"][policy.name], configured.doubts(own, described)


@pytest.mark.parametrize(("text", "is_kept"), [(_BLANKET, True), (_OF_T, False)])
def test_what_is_said_for_many_topics_makes_no_tiered_topic_one_that_is_not(
    tmp_path: Path, text: str, is_kept: bool
) -> None:
    """A broker keeps what it has not copied to the bucket yet."""
    configured = _configured(tmp_path, ("remote.storage.enable", "true"))
    assert _completed(configured, _policy(tmp_path, text), deletes=True)[0].policy.remote_storage is is_kept


@pytest.mark.parametrize(
    ("committed", "uncommitted"), [("compact", "delete"), ("delete", "compact"), (None, "compact")]
)
def test_the_end_of_the_metadata_keeps_a_compacted_topic(
    tmp_path: Path, committed: str | None, uncommitted: str
) -> None:
    """Of several voters nobody knows what is committed behind the last snapshot; not even whether the topic is."""
    change = config("t", "cleanup.policy", uncommitted)
    if committed is None:
        configured = _configured(tmp_path, is_there=False, uncommitted=[topic("t", ID_OF_T), change])
    else:
        configured = _configured(tmp_path, ("cleanup.policy", committed), uncommitted=[change])
    found, _ = _completed(configured, _policy(tmp_path, _BLANKET), deletes=True)
    assert found.policy.cleanup == {Cleanup.COMPACT}


def test_the_remedy_names_what_is_lacking(tmp_path: Path) -> None:
    """Metadata alone does not say what the broker sets for topics without a value of their own."""
    known = _configured(tmp_path / "a", ("retention.ms", "5")).remedy("t")
    assert "name --server-properties" in known and "--cluster-metadata" not in known
    other = _configured(tmp_path / "b", topic_id=OTHER_ID).remedy("t")
    assert "its topic id is" in other and "--policy" in other
    nothing = RetentionConfigs.from_metadata(MetadataOptions(), {"s": str(tmp_path)}, ["s"], lambda: pa.table({}))
    assert nothing.remedy("t") == "name --cluster-metadata and --server-properties, or --policy"


@pytest.mark.parametrize(("text", "is_kept"), [(_BLANKET, True), (_OF_T, False)])
def test_what_is_said_for_many_topics_makes_no_compacted_topic_one_with_delete(
    tmp_path: Path, text: str, is_kept: bool
) -> None:
    """The topic's own policy wins where something is deleted; what is said of the topic itself wins over both."""
    configured = _configured(tmp_path, ("cleanup.policy", "compact"))
    policy = _policy(tmp_path, text)
    asked, _ = _completed(configured, policy, deletes=False)
    deleting, _ = _completed(configured, policy, deletes=True)
    assert asked == policy.of_topic("t") and asked.policy.retention_ms == deleting.policy.retention_ms == 7
    assert deleting.policy.cleanup == ({Cleanup.COMPACT} if is_kept else {Cleanup.DELETE})
    assert deleting.origins["cleanup.policy"] is Origin.TOPIC


@pytest.mark.parametrize(
    ("retention_ms", "topic_id", "doubt"),
    [
        ("5", ID_OF_T, None),
        ("6", ID_OF_T, "topic t: retention.ms: --policy and {} as of offset 10, 1970-01-01T00:00:01.000Z differ"),
        ("5", OTHER_ID, "topic t: its topic id is {other} in source s, and {} has the topic id {own}"),
    ],
)
def test_a_listing_that_the_metadata_contradicts_decides_nothing(
    tmp_path: Path, retention_ms: str, topic_id: str, doubt: str | None
) -> None:
    """It may be older, or of another cluster, or of a topic that was made again."""
    configured = _configured(tmp_path, ("retention.ms", "5"), topic_id=topic_id)
    policy = _policy(tmp_path, _DESCRIBED.format(retention_ms))
    found, doubts = _completed(configured, policy, deletes=True)
    assert (found == NOTHING_KNOWN) == (doubt is not None)
    where = tmp_path / "log-dir" / METADATA_DIRECTORY
    expected = [] if doubt is None else [doubt.format(where, own=ID_OF_T, other=OTHER_ID)]
    assert [said[: len(wanted)] for said, wanted in zip(doubts, expected, strict=True)] == expected


def test_what_the_end_of_the_metadata_may_have_changed_decides_nothing(tmp_path: Path) -> None:
    """With several voters nobody knows whether that is committed. A what-if goes by what is."""
    for number, (uncommitted, is_known) in enumerate((("-1", False), ("5", True), (None, True))):
        change = [] if uncommitted is None else [config("t", "retention.ms", uncommitted)]
        configured = _configured(tmp_path / str(number), ("retention.ms", "5"), uncommitted=change)
        found, doubts = _completed(configured, Policy(), deletes=True)
        assert (found.origins["retention.ms"] is Origin.TOPIC) == is_known
        assert [": retention.ms: the end of " in doubt for doubt in doubts] == ([] if is_known else [True])
        assert _completed(configured, Policy(), deletes=False)[0].policy.retention_ms == 5
