"""What a broker has said: whether a disk did not take what it wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kidxlib.errors import UntrustedError

#: `LogDirFailureChannel` and `UnifiedLog.maybeHandleIOException` say the first two, Java and the C library the others.
_ERROR: Final = re.compile(
    r"KafkaStorageException|Error while (flushing|writing|appending|rolling|renaming|deleting|truncating|reading)"
    r"|Input/output error|No space left on device|Read-only file system|Structure needs cleaning|Stale file handle"
)


def ensure_no_errors_in(broker_log: Path) -> None:
    """See that a broker tells of no error of a disk.

    Raises:
        UntrustedError: it does, or the file cannot be read.
    """
    try:
        with broker_log.open(errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if _ERROR.search(line):
                    raise UntrustedError(f"{broker_log}: line {number}: {line.strip()}")
    except OSError as error:
        raise UntrustedError(f"{broker_log}: not readable: {error.strerror}") from error
