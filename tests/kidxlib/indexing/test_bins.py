"""Each segment is in one bin, the biggest come first, and no core waits for a single bin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.indexing.bins import BINS_PER_CORE, into_bins
from kidxlib.indexing.plan import ScanTask
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Directory, FileVersion
from tests.support.plans import listed_segment


def task(base_offset: int, log_bytes: int) -> ScanTask:
    version = FileVersion(log_bytes, 0, 0) if log_bytes else None
    segment = listed_segment(base_offset, f"/t-3/{base_offset}.log", version)
    return ScanTask(segment=segment, options=RecoverOptions(), index_directory=Directory("/i", "t-3"))


@given(st.lists(st.integers(0, 2**34), max_size=60), st.integers(1, 16))
def test_each_segment_is_read_once_and_the_biggest_first(sizes: list[int], cores: int) -> None:
    tasks = [task(number, size) for number, size in enumerate(sizes)]
    bins = into_bins(tasks, cores)
    packed = [each for bin_ in bins for each in bin_]
    assert [each.log_bytes for each in packed] == sorted(sizes, reverse=True)
    assert sorted(each.segment.base_offset for each in packed) == list(range(len(sizes)))
    assert all(bins)
    # Where there are fewer segments than cores, all of the cores have work.
    assert {each.threads for each in packed} == ({max(cores // len(sizes), 1)} if sizes else set())


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=400), st.integers(1, 8))
def test_a_bin_holds_its_share_or_one_segment(sizes: list[int], cores: int) -> None:
    bins = into_bins([task(number, size) for number, size in enumerate(sizes)], cores)
    wanted = cores * BINS_PER_CORE
    for bin_ in bins:
        assert len(bin_) <= len(sizes) // wanted + 1
        assert len(bin_) == 1 or sum(each.log_bytes for each in bin_) <= sum(sizes) // wanted + 1
    assert len(bins) >= min(len(sizes), wanted) / 2
