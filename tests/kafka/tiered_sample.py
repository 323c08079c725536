"""Makes `samples/tiered` anew: what a broker with `LocalTieredStorage` uploads, and the metadata of it.

Run it with `python -m tests.kafka.tiered_sample`, in `.venv`. Ids and times differ each time, and docs/tiered.md names
some.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.support.kafka.jars import PROJECT
from tests.support.kafka.tiered import ONE_PARTITION_EACH, fill, site_of, tiered_broker


def main() -> None:
    """Fill a broker, and keep what it leaves."""
    sample = PROJECT / "samples" / "tiered"
    with tempfile.TemporaryDirectory() as directory:
        broker = tiered_broker(Path(directory) / "broker", ONE_PARTITION_EACH)
        with broker.running():
            fill(broker)
        shutil.rmtree(sample, ignore_errors=True)
        site_of(broker, sample)


if __name__ == "__main__":
    main()
