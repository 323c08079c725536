"""Policy files: what they mean, and which key is wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import UsageError
from kidxlib.retention.decide import kept_for_its_topic
from kidxlib.retention.policy import (
    DECIDING_CONFIGS,
    RETENTION_MS_DEFAULT,
    Cleanup,
    Origin,
    Policy,
    Reason,
    TopicConfig,
    TopicPolicy,
)
from kidxlib.retention.policy_file import read_retention_policies

#: What is said of keys of thousands of parts by Python 3.14, which refuses them as it reads the file.
_NESTED: Final = "its values are nested too deeply" if sys.version_info >= (3, 14) else None

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


def _read(directory: Path, text: str) -> tuple[Policy, ...]:
    (directory / "policy.toml").write_text(text)
    return read_retention_policies(directory / "policy.toml")


def test_named_policies_with_ordered_patterns(tmp_path: Path) -> None:
    """Kafka's defaults below the file's, these below a policy's, these below the first pattern's."""
    today, three_days = _read(tmp_path, _NAMED)
    both = frozenset(Cleanup)
    assert (today.name, three_days.name) == ("today", "3 days")
    assert today.of_topic("ab").policy == TopicPolicy(retention_ms=1000)
    assert three_days.of_topic("x").policy == TopicPolicy(retention_ms=1000, retention_bytes=5, cleanup=both)
    assert three_days.of_topic("ac").policy == TopicPolicy(retention_ms=-1, retention_bytes=5, cleanup=both)
    assert three_days.of_topic("ab").policy == TopicPolicy(
        retention_ms=1000,
        retention_bytes=5,
        cleanup=frozenset({Cleanup.COMPACT}),
        log_start_offsets=((0, 7), (12, 0)),
    )


def test_a_file_without_names_is_one_policy(tmp_path: Path) -> None:
    [policy] = _read(tmp_path, 'cleanup.policy = "none"\n[[topic]]\nmatch = "t"\nremote.storage.enable = true\n')
    assert policy.name == "default" and policy.of_topic("u").policy == TopicPolicy(cleanup=frozenset())
    assert _read(tmp_path, "")[0].of_topic("u").policy == TopicPolicy(retention_ms=RETENTION_MS_DEFAULT)
    assert _kept("t", policy.of_topic("t")) is Reason.NOT_MODELLED


def test_each_value_tells_who_said_it(tmp_path: Path) -> None:
    """Of the very topic, all whose names match, all of the file, or nobody; one that is known makes no other so."""
    [policy] = _read(
        tmp_path,
        "retention.ms = 1\n"
        "[[topic]]\nmatch = 'a\\.b'\norder = 1\ncleanup.policy = 'delete'\n"
        "[[topic]]\nmatch = 'a.*'\norder = 2\ncleanup.policy = 'delete'\nremote.storage.enable = false\n",
    )
    origins = [
        [policy.of_topic(topic).origins[name].value for name in DECIDING_CONFIGS] for topic in ("a.b", "ac", "x")
    ]
    assert origins == [
        ["topic", "default", "kafka-default", "kafka-default"],
        ["pattern", "default", "kafka-default", "pattern"],
        ["kafka-default", "default", "kafka-default", "kafka-default"],
    ]
    assert [policy.of_topic(topic).unknown for topic in ("a.b", "ac", "x")] == [
        ("retention.bytes", "remote.storage.enable"),
        ("retention.bytes",),
        ("cleanup.policy", "retention.bytes", "remote.storage.enable"),
    ]
    assert [policy.of_topic(topic).assumes_delete for topic in ("a.b", "ac", "x")] == [False, True, True]


def test_limits_are_not_asked_for_where_nothing_is_deleted(tmp_path: Path) -> None:
    [policy] = _read(tmp_path, "cleanup.policy = 'compact'\nremote.storage.enable = false\n")
    assert policy.of_topic("t").unknown == () and _kept("t", policy.of_topic("t"), what_if=False) is None


def test_a_topic_of_which_not_all_is_known_or_that_looks_compacted_is_kept() -> None:
    """Unless it is asked what would be; and one that looks compacted even then, as nobody said that it is deleted."""
    config = Policy().of_topic("t")
    assert _kept("t", config, what_if=False) is Reason.POLICY_UNKNOWN
    assert _kept("t", config) is None
    assert _kept("t", config, looks_compacted=True) is Reason.LOOKS_COMPACTED
    said = replace(config, origins=dict.fromkeys(DECIDING_CONFIGS, Origin.TOPIC))
    assert _kept("t", said, what_if=False, looks_compacted=True) is None


def test_internal_topics() -> None:
    """Kept unless they are asked for, and then with the settings that a broker gives them, where nobody said others."""
    policy = Policy()
    offsets = policy.of_topic("__consumer_offsets")
    assert offsets.policy.cleanup == {Cleanup.COMPACT} and offsets.origins["cleanup.policy"] is Origin.KAFKA
    assert _kept("__consumer_offsets", offsets, include_internal=False) is Reason.INTERNAL_TOPIC
    assert _kept("__consumer_offsets", offsets) is None
    assert _kept("__consumer_offsets", offsets, what_if=False) is Reason.POLICY_UNKNOWN
    assert _kept("__cluster_metadata", policy.of_topic("__cluster_metadata")) is Reason.NOT_MODELLED
    assert _kept("orders", policy.of_topic("orders"), include_internal=False) is None


def _kept(
    topic: str,
    config: TopicConfig,
    *,
    include_internal: bool = True,
    what_if: bool = True,
    looks_compacted: bool = False,
) -> Reason | None:
    return kept_for_its_topic(
        topic, config, include_internal=include_internal, what_if=what_if, looks_compacted=looks_compacted
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nretention.msec = 5\n", "retention.msec: unknown key; did you mean retention.ms?"),
        ("[policy.a]\n[policy.b]\n'colour' = 1\n", "policy.b.colour: unknown key; known: cleanup.policy, remote.st"),
        ("[policy.a]\nretention.ms = -2\n", "policy.a.retention.ms = -2; expected a whole number, -1 (no limit) or"),
        ("[retention]\n# bytes\nbytes = -7\n", "retention.bytes = -7; expected"),
        ("retention.ms = true\n", "retention.ms = True; expected a whole number"),
        ("[[topic]]\nmatch='a'\n[[topic]]\nretention.ms=1\n", "topic 2: match: missing; each such table needs it"),
        (
            "[[policy.'3 days'.topic]]\nmatch='a'\norder=true\n",
            "policy.'3 days'.topic 1: order = True; expected a",
        ),
        ("[[topic]]\nmatch='a('\n", "topic 1: match = 'a('; expected a regular expression ("),
        ("cleanup.policy = 'del'\n", "cleanup.policy = 'del'; expected delete, compact, both"),
        (
            "[[topic]]\nmatch='a'\nlog.start.offsets = { x = 1 }\n",
            "topic 1: log.start.offsets = {'x': 1}; expected off",
        ),
        ("log.start.offsets = { 0 = 1 }\n", "log: unknown key; known: "),
        ("[policy.a]\n[[topic]]\nmatch='a'\n", "[[topic]] beside [policy.NAME]; put it into each"),
        ("retention.ms = 1\n'retention.ms' = 2\n", "retention.ms: given twice; keep one of them"),
        ("retention.ms = \n", "not valid TOML: Invalid value (at line 1"),
        ("retention.ms = " + "9" * 5000, "a number of more than 4,300 digits"),
        ("\nretention.ms = 0x" + "f" * 5000, "retention.ms = …; expected a whole number"),
        ("retention.ms = " + "[" * 5000, "its values are nested too deeply"),
        (f"\nretention.ms{'.a' * 5_000} = 1", _NESTED or "retention.ms = …; expected a whole number"),
        (f"\ncleanup.policy = [{{a{'.a' * 5_000} = 1}}]", _NESTED or "cleanup.policy = …; expected delete, compact"),
        ("[[topic]]\nmatch='a{99999999999}'\n", "topic 1: match = 'a{99999999999}'; expected a regular expression ("),
        (f"[[topic]]\nmatch='{'(' * 5000}{')' * 5000}'\n", "topic 1: match = '((("),
    ],
    ids=lambda value: value[:40],
)
def test_a_wrong_key_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        _read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/policy.toml: {message}")


@pytest.mark.parametrize(("first", "second"), [("", ""), ("order = 1", ""), ("order = 1", "order = 1")])
def test_patterns_that_both_match_need_an_order(first: str, second: str, tmp_path: Path) -> None:
    text = f"[[topic]]\nmatch = 'a.*'\n{first}\n\n[[topic]]\nmatch = '.*b'\n{second}\n"
    [policy] = _read(tmp_path, text)
    assert policy.of_topic("ac").policy == policy.of_topic("cb").policy == TopicPolicy()
    [named] = _read(tmp_path, text.replace("[topic]", "[policy.x.topic]"))
    with pytest.raises(UsageError, match=r"policy.toml: policy.x: topic ab matches"):
        named.of_topic("ab")
    with pytest.raises(UsageError, match=r"policy.toml: topic ab matches 'a\.\*' and '\.\*b'; give each"):
        policy.of_topic("ab")
