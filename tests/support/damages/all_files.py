"""The damages of all kinds of files."""

from __future__ import annotations

from typing import Final

from tests.support.damages.leader_epochs import LEADER_EPOCHS
from tests.support.damages.offset_indexes import OFFSET_INDEXES
from tests.support.damages.snapshots import SNAPSHOTS
from tests.support.damages.time_indexes import TIME_INDEXES
from tests.support.damages.transaction_indexes import TRANSACTION_INDEXES

DAMAGES: Final = [*OFFSET_INDEXES, *TIME_INDEXES, *TRANSACTION_INDEXES, *SNAPSHOTS, *LEADER_EPOCHS]
