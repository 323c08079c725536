"""Directories that options name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.indexing.directories import index_dir_to_write


@pytest.mark.parametrize("inside", ["", "orders-0", "b1/orders-0"])
def test_a_log_dir_is_no_index_directory(inside: str, tmp_path: Path) -> None:
    """Its index files would be replaced, without its lock: a partition, a log dir, and log dirs by source."""
    index_dir = tmp_path / "indexes"
    directory = index_dir / inside
    directory.mkdir(parents=True)
    (directory / segment_file(0, OFFSET_INDEX_SUFFIX)).touch()
    assert index_dir_to_write("--index-dir", str(index_dir)) == index_dir
    (directory / segment_file(0, LOG_SUFFIX)).touch()
    with pytest.raises(UsageError, match=f"it is a log dir, {directory}/0+.log is there"):
        index_dir_to_write("--index-dir", str(index_dir))
