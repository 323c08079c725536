"""The limits that the report tries, and the times for which it does."""

from __future__ import annotations

from typing import Final

from kidxlib.retention.ladder import Ladder
from kidxlib.retention.topic_policy import UNLIMITED

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30

#: `retention.ms` from short to long, `retention.bytes` of a partition from small to large; no limit comes last.
LADDER: Final = Ladder(
    times_ms=(
        *(_HOUR_MS, 6 * _HOUR_MS, _DAY_MS, 2 * _DAY_MS, 3 * _DAY_MS, 5 * _DAY_MS, 7 * _DAY_MS, 14 * _DAY_MS),
        *(30 * _DAY_MS, 90 * _DAY_MS, 365 * _DAY_MS, UNLIMITED),
    ),
    sizes=(_MIB, 10 * _MIB, 100 * _MIB, _GIB, 10 * _GIB, 50 * _GIB, 100 * _GIB, UNLIMITED),
)
#: How long after the report's own time: now, and a week later if nothing is written until then.
LATER_MS: Final = (0, 7 * _DAY_MS)
#: What topics are configured to; and the same but for the limits, which the ladder replaces.
CONFIGURED_POLICY: Final = "configured"
LADDER_POLICY: Final = "ladder"
