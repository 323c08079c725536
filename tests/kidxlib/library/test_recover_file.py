"""A log by its path is recovered as its bytes are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from kidxlib.errors import LogChangedError, UsageError
from kidxlib.library.recover_file import recover_file
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.segment import RecoveredSegment, recover
from tests.support.logs.golden import GoldenSegment
from tests.support.object_store import ObjectStore


@pytest.mark.parametrize("use_mmap", [False, True])
def test_golden_files(golden_segment: GoldenSegment, use_mmap: bool) -> None:
    recovered = recover_file(golden_segment.log, golden_segment.options, use_mmap=use_mmap)
    if recovered.end.status is not Status.QUARANTINED:
        assert recovered.offset_index == golden_segment.offset_index
        assert recovered.time_index == golden_segment.time_index
        assert recovered.end.position == golden_segment.log.stat().st_size - golden_segment.truncated_bytes


def test_an_object_and_a_text(golden_segments: list[GoldenSegment], store: ObjectStore) -> None:
    """The base offset stands in the name of either, and Kafka's defaults hold where nobody says more."""
    golden = next(segment for segment in golden_segments if segment.base_offset == 5797)
    url = store.upload(golden.log.parent, "recover-file")
    for path in (str(golden.log), f"{url}/{golden.log.name}"):
        assert recover_file(path).offset_index == golden.offset_index


@pytest.mark.parametrize("name", ["7.log", "00000000000000000000.index", "s3://bucket/key/a.log", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected the path of a segment's log"):
        recover_file(name)
    with pytest.raises(UsageError, match=r"^gs://bucket/00000000000000000000"):
        recover_file("gs://bucket/00000000000000000000.log")


def test_a_log_that_changes_meanwhile_is_refused(
    golden_segments: list[GoldenSegment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(shutil.copy(golden_segments[0].log, tmp_path))

    def grows(*arguments: object) -> RecoveredSegment:
        with log.open("ab") as file:
            file.write(np.zeros(8, np.uint8).tobytes())
            os.fsync(file.fileno())
        return recover(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("kidxlib.library.recover_file.recover", grows)
    with pytest.raises(LogChangedError, match="a broker seems to be writing to it"):
        recover_file(log, RecoverOptions())
