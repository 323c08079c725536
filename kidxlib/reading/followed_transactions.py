"""The transactions of a partition whose log grows: what was scanned once is not scanned again."""

from __future__ import annotations

from kidxlib.reading.places import PartitionLogs
from kidxlib.reading.transactions import LogToScan, TransactionFold, Transactions, scan_log


class FollowedTransactions:
    """What `transactions_of` tells, of one partition that is asked about again and again."""

    def __init__(self, *, goes_on: bool) -> None:
        """
        Args:
            goes_on: after damage, see `LogToScan`.
        """
        self._goes_on = goes_on
        self._fold = TransactionFold()
        self._next_offset = -1

    def up_to(self, logs: PartitionLogs, end_offset: int, *, since: int) -> Transactions:
        """The transactions as they are if the log ends there.

        Args:
            end_offset: not beyond the last whole batch.
            since: nothing before this offset is asked for, now and later.

        Raises:
            DamagedLogError, LogChangedError, OSError: as `transactions_of`.
        """
        if end_offset < self._next_offset:  # the log was truncated, or its high watermark is an older one
            self._fold, self._next_offset = TransactionFold(), -1
        for part in logs.parts(self._next_offset, end_offset) if end_offset > self._next_offset else ():
            log = LogToScan(
                path=str(part.path),
                base_offset=part.base_offset,
                size=part.end,
                is_last=False,
                end_offset=end_offset,
                goes_on=self._goes_on,
                position=part.start,
            )
            for piece in scan_log(log):
                self._fold.add(log, piece)
        self._next_offset = end_offset
        self._fold.forget_before(since)
        return self._fold.transactions(end_offset)
