"""The kernel's log: whether it tells since some moment that something that was written did not reach a disk."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UntrustedError

_DEVICE: Final = "/dev/kmsg"
_MESSAGE_BYTES_MAX: Final = 8192  # CONSOLE_EXT_LOG_MAX

#: Of syslog(3): what the kernel itself says, and how bad it is.
_OF_KERNEL: Final = 0
_ERROR: Final = 3
#: A process that is killed for want of memory, which loses no page.
_HARMLESS: Final = re.compile(r"out of memory: killed process|oom[-_]kill|invoked oom-killer", re.IGNORECASE)
#: Whatever level it has.
_HARMFUL: Final = re.compile(
    r"i/o error|lost (async|sync|page|write)|data (will|may) be lost|remounting filesystem|shutting down filesystem"
    r"|memory failure|hardware error|medium error|device offline",
    re.IGNORECASE,
)

#: The device of a file system, of its journal, or of the block layer.
_DEVICE_NAMED: Final = re.compile(
    r"^(?:EXT4-fs|XFS|F2FS-fs|EXT2-fs)[^(:]*\((?:device )?([\w-]+)\)"
    r"|^Aborting journal on device ([\w-]+?)(?:-\d+)?\.$|I/O error(?: on|,) dev ([\w-]+),"
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the kernel's log.

    Attributes:
        number: its place in the log, which counts on by one (`SEQNUM`).
        facility, level: as of syslog(3).
    """

    number: int
    facility: int
    level: int
    text: str


def last_message() -> int:
    """The number of the last message that is there now.

    Raises:
        UntrustedError: the log cannot be read.
    """
    return max((message.number for message in _messages()), default=-1)


def ensure_no_errors_since(number: int, devices: frozenset[str] | None) -> None:
    """See that the kernel has told of no error since a message.

    Args:
        devices: names of the block devices that count; None for all.

    Raises:
        UntrustedError: it has; or the log cannot be read, or reaches no longer back to there.
    """
    ensure_no_errors(list(_messages()), number, devices)


def ensure_no_errors(messages: Sequence[Message], number: int, devices: frozenset[str] | None = None) -> None:
    """See that none of some messages after one of them is an error.

    Raises:
        UntrustedError: see `ensure_no_errors_since`.
    """
    numbers = [message.number for message in messages]
    if min(numbers, default=number) > number + 1 or max(numbers, default=-1) < number:
        raise UntrustedError(
            f"the kernel's log has messages {min(numbers, default=0)} to {max(numbers, default=-1)}, expected all from "
            f"{number} on: whether there were errors is not known"
        )
    for message in messages:
        if message.number > number and _is_error(message) and not _is_of_another(message, devices):
            raise UntrustedError(f"the kernel's log has an error: {message.text}")


def parse_message(line: bytes) -> Message:
    """A message as `/dev/kmsg` gives it: `<priority>,<number>,<microseconds>,<flags>[,…];<text>`."""
    fields, _, rest = line.decode(errors="replace").partition(";")
    priority, number = map(int, fields.split(",")[:2])
    return Message(number, priority >> 3, priority & 7, rest.split("\n", 1)[0])


def _is_error(message: Message) -> bool:
    if message.facility != _OF_KERNEL or _HARMLESS.search(message.text):
        return False
    return message.level <= _ERROR or _HARMFUL.search(message.text) is not None


def _is_of_another(message: Message, devices: frozenset[str] | None) -> bool:
    """Whether it is about a block device that is none of these. What names no device may be about any."""
    found = _DEVICE_NAMED.search(message.text)
    return devices is not None and found is not None and found[found.lastindex or 0] not in devices


def _messages() -> Iterator[Message]:
    try:
        device = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                yield parse_message(os.read(device, _MESSAGE_BYTES_MAX))
        finally:
            os.close(device)
    except OSError as error:
        if error.errno != errno.EAGAIN:  # which is its end
            raise UntrustedError(
                f"{_DEVICE}: the kernel's log cannot be read ({error.strerror}), so whether there were errors is not "
                "known: it takes root, or CAP_SYSLOG"
            ) from error
