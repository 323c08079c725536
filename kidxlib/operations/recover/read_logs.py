"""How logs are read for a forecast: once, as what was found is kept for the rebuild."""

from __future__ import annotations

from dataclasses import dataclass, field

from kidxlib.audit.startup.recovery import Recovery
from kidxlib.recovery.kept_scans import ScanWriter
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.parallel import recover_in_sections
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads logs of one partition.

    Attributes:
        use_mmap: map them, which is faster; a bad sector then kills the process.
        threads: that may read one of them at the same time.
        kept: gets the scans; None where nobody reads the logs again.
        recoveries: what was found in logs as a whole, by base offset.
    """

    use_mmap: bool = False
    threads: int = 1
    kept: ScanWriter | None = None
    recoveries: dict[int, Recovery] = field(default_factory=dict)

    def read(self, path: str, kept_bytes: int, base_offset: int, options: RecoverOptions) -> Recovery:
        """Read what is left of a log. See `ReadLog`.

        Raises:
            OSError, LogChangedError: it cannot be read.
        """
        with opened_log(path) as opened:
            # Where no checksum is looked at, what stands between headers is not to be read.
            access = Access.SEQUENTIAL if options.verify_crc else Access.NORMAL
            log = opened.log(kept_bytes, use_mmap=self.use_mmap, access=access)
            scanned = recover_in_sections(log, base_offset, options, self.threads)
            recovery = Recovery.of(log, scanned, base_offset)
            if kept_bytes == opened.version.size and base_offset not in self.recoveries:
                self.recoveries[base_offset] = recovery
                if self.kept is not None:
                    self.kept.keep(base_offset, opened.version, options, scanned)
        return recovery
