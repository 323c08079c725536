"""What a broker that stopped cleanly forgets where no producer snapshot is left (`UnifiedLog.rebuildProducerState`).

A clean stop leaves a snapshot at the end of each log that has a record. A broker that finds none at all takes that for
an upgrade from a release without producers: it reads no log, and notes that there are none. Where one is left, or the
stop was unclean, it reads the log from there on, and knows them all.
"""

from __future__ import annotations

from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.recovery.partition import PartitionFold, StateSource
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.location import Location
from kidxlib.text.counted import counted


def forgotten_producers(fold: PartitionFold, directory: Location) -> str | None:
    """What a broker forgets that finds no producer snapshot after a clean stop, and what to do; None where the log has
    no producers.

    Args:
        fold: over all segments of the partition.
        directory: of the partition.
    """
    count, open_ones = len(read_snapshot(fold.end_snapshot)), fold.ongoing
    if not count:
        return None
    served = ""
    if open_ones:
        served = (
            f", and records of {counted(len(open_ones), 'open transaction')} (from offset {min(open_ones)} on) are "
            "served as if committed"
        )
    return (
        f"no producer snapshot after a clean stop; a broker that starts forgets {counted(count, 'producer')} of this "
        f"log: a batch that one sends again is there twice{served}; {_remedy(fold, directory)}"
    )


def _remedy(fold: PartitionFold, directory: Location) -> str:
    if fold.end_source is StateSource.UNKNOWN:  # a build writes no snapshot then
        return (
            f"remove {CLEAN_SHUTDOWN_FILE} in all log dirs of the broker, which then learns of them from the log, as "
            "after a crash: the log begins above offset 0 or has gaps, so kidx build does not make a snapshot"
        )
    topic = directory.name.rpartition("-")[0]
    return f"make it from the log: kidx build {directory.parent} --in-place --snapshots --topics '{topic}'"
