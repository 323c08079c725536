"""Which messages of the kernel say that something was lost."""

from __future__ import annotations

import pytest

from kidxlib.errors import UntrustedError
from kidxlib.operations.recover.page_cache.kernel_log import Message, ensure_no_errors, parse_message

_OLD = Message(7, 0, 6, "EXT4-fs (sda1): mounted filesystem")


def test_a_message_as_the_device_gives_it() -> None:
    line = b"6,339,5140900,-,caller=T1;NET: Registered PF_INET\\x09family\n SUBSYSTEM=net\n DEVICE=n1\n"
    assert parse_message(line) == Message(339, 0, 6, "NET: Registered PF_INET\\x09family")
    assert parse_message(b"30,5,1,-;systemd[1]: Started").facility == 3


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (3, "Buffer I/O error on dev sda1, logical block 7, lost async page write"),
        (4, "EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12 starting block 34"),
        (2, "EXT4-fs error (device sda1): ext4_journal_check_start:84: comm java: Detected aborted journal"),
        (2, "EXT4-fs (sda1): Remounting filesystem read-only"),
        (1, "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work. Shutting down filesystem."),
        (6, "blk_update_request: critical medium error, dev sda, sector 5"),
        (3, "Memory failure: 0x1234: recovery action for dirty LRU page: Failed"),
        (3, "something that nobody has thought of"),
    ],
)
def test_errors(level: int, text: str) -> None:
    error = Message(8, 0, level, text)
    with pytest.raises(UntrustedError, match="the kernel's log has an error: "):
        ensure_no_errors([_OLD, error], 7)
    ensure_no_errors([_OLD, error], 8)  # it was there before


@pytest.mark.parametrize(
    ("facility", "level", "text"),
    [
        (0, 3, "Out of memory: Killed process 4711 (java) total-vm:33554432kB, anon-rss:1kB"),
        (0, 3, "Memory cgroup out of memory: Killed process 4711 (java) total-vm:1kB"),
        (0, 4, "java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (3, 3, "systemd[1]: kafka.service: Failed with result 'oom-kill'."),
        (0, 6, "EXT4-fs (sdb1): mounted filesystem with ordered data mode"),
    ],
)
def test_what_loses_no_page(facility: int, level: int, text: str) -> None:
    ensure_no_errors([_OLD, Message(8, facility, level, text)], 7)


@pytest.mark.parametrize("numbers", [[], [9, 10], [3, 4]])
def test_a_log_that_does_not_reach_back(numbers: list[int]) -> None:
    """Messages were overwritten, or it is another kernel's."""
    with pytest.raises(UntrustedError, match="whether there were errors is not known"):
        ensure_no_errors([Message(number, 0, 6, "") for number in numbers], 7)
    ensure_no_errors([Message(number, 0, 6, "") for number in (8, 9)], 7)


@pytest.mark.parametrize(
    "text",
    [
        "EXT4-fs (loop0): shut down requested (2)",
        "EXT4-fs error (device loop0): ext4_journal_check_start:84: comm java: Detected aborted journal",
        "Aborting journal on device loop0-8.",
        "Buffer I/O error on dev loop0, logical block 7, lost async page write",
        "I/O error, dev loop0, sector 8 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
    ],
)
def test_another_device(text: str) -> None:
    """What names a device is of no other one. Without a name, it may be of any."""
    error = Message(8, 0, 2, text)
    ensure_no_errors([_OLD, error], 7, frozenset({"sda", "sda1"}))
    for devices in (None, frozenset({"loop0"})):
        with pytest.raises(UntrustedError):
            ensure_no_errors([_OLD, error], 7, devices)
    with pytest.raises(UntrustedError):
        ensure_no_errors([_OLD, Message(8, 0, 2, "I/O error somewhere")], 7, frozenset({"sda"}))
