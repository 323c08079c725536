"""Policy files: what they mean, and which line is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.policy import Policy, kept_for_its_topic, read_policies
from kidxlib.retention import RETENTION_MS_DEFAULT, Cleanup, Reason, TopicPolicy

_NAMED = """\
# What would be deleted by each?
"retention.ms" = 1000

[policy.today]

[policy."3 days"]
retention = { bytes = 5 }
cleanup.policy = "compact,delete"

[[policy."3 days".topic]]
match = "a.*"
order = 2
retention.ms = -1

[[policy."3 days".topic]]
match = "ab"
order = 1
cleanup.policy = ["compact"]
log.start.offsets = { 0 = 7, 12 = 0 }
"""


def _read(folder: Path, text: str) -> tuple[Policy, ...]:
    (folder / "policy.toml").write_text(text)
    return read_policies(folder / "policy.toml")


def test_named_policies_with_ordered_patterns(tmp_path: Path) -> None:
    """Kafka's defaults below the file's, these below a policy's, these below the first pattern's."""
    today, three_days = _read(tmp_path, _NAMED)
    both = frozenset(Cleanup)
    assert (today.name, three_days.name) == ("today", "3 days")
    assert today.of_topic("ab") == TopicPolicy(retention_ms=1000)
    assert three_days.of_topic("x") == TopicPolicy(retention_ms=1000, retention_bytes=5, cleanup=both)
    assert three_days.of_topic("ac") == TopicPolicy(retention_ms=-1, retention_bytes=5, cleanup=both)
    assert three_days.of_topic("ab") == TopicPolicy(
        retention_ms=1000,
        retention_bytes=5,
        cleanup=frozenset({Cleanup.COMPACT}),
        log_start_offsets=((0, 7), (12, 0)),
    )


def test_a_file_without_names_is_one_policy(tmp_path: Path) -> None:
    [policy] = _read(tmp_path, 'cleanup.policy = "none"\n[[topic]]\nmatch = "t"\nremote.storage.enable = true\n')
    assert policy.name == "default" and policy.of_topic("u") == TopicPolicy(cleanup=frozenset())
    assert _read(tmp_path, "")[0].of_topic("u") == TopicPolicy(retention_ms=RETENTION_MS_DEFAULT)
    assert kept_for_its_topic("t", policy.of_topic("t"), True) is Reason.NOT_MODELLED


def test_internal_topics() -> None:
    """Kept unless they are asked for, and then with the settings that a broker gives them."""
    policy = Policy()
    offsets = policy.of_topic("__consumer_offsets")
    assert offsets.cleanup == {Cleanup.COMPACT}
    assert kept_for_its_topic("__consumer_offsets", offsets, False) is Reason.INTERNAL_TOPIC
    assert kept_for_its_topic("__consumer_offsets", offsets, True) is None
    assert kept_for_its_topic("__cluster_metadata", TopicPolicy(), True) is Reason.NOT_MODELLED
    assert kept_for_its_topic("orders", TopicPolicy(), False) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nretention.msec = 5\n", "line 2: unknown key retention.msec; did you mean retention.ms?"),
        ("[policy.a]\n[policy.b]\n'colour' = 1\n", "line 3: unknown key colour; known: cleanup.policy, remote.storage"),
        ("[policy.a]\nretention.ms = -2\n", "line 2: retention.ms = -2; expected a whole number, -1 (no limit) or"),
        ("[retention]\n# bytes\nbytes = -7\n", "line 3: retention.bytes = -7; expected"),
        ("retention.ms = true\n", "line 1: retention.ms = True; expected a whole number"),
        ("[[topic]]\nmatch='a'\n[[topic]]\nretention.ms=1\n", "line 3: [[topic]] without match"),
        ("[[topic]]\nmatch='a('\n", "line 2: match = 'a('; expected a regular expression ("),
        ("cleanup.policy = 'del'\n", "line 1: cleanup.policy = 'del'; expected delete, compact, both"),
        ("[[topic]]\nmatch='a'\nlog.start.offsets = { x = 1 }\n", "line 3: log.start.offsets = {'x': 1}; expected off"),
        ("log.start.offsets = { 0 = 1 }\n", "line 1: unknown key log"),
        ("[policy.a]\n[[topic]]\nmatch='a'\n", "line 2: [[topic]] beside [policy.NAME]"),
        ("retention.ms = 1\n'retention.ms' = 2\n", "line 2: retention.ms: given twice"),
        ("retention.ms = \n", "not valid TOML: Invalid value (at line 1"),
    ],
)
def test_a_wrong_line_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        _read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/policy.toml: {message}")


@pytest.mark.parametrize(("first", "second"), [("", ""), ("order = 1", ""), ("order = 1", "order = 1")])
def test_patterns_that_both_match_need_an_order(first: str, second: str, tmp_path: Path) -> None:
    text = f"[[topic]]\nmatch = 'a.*'\n{first}\n\n[[topic]]\nmatch = '.*b'\n{second}\n"
    [policy] = _read(tmp_path, text)
    assert policy.of_topic("ac") == policy.of_topic("cb") == TopicPolicy()
    with pytest.raises(UsageError, match=r"policy.toml: line 5: topic ab matches .*, and .* of line 1; give each"):
        policy.of_topic("ab")
