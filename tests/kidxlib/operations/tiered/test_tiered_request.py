"""What an audit of tiered storage refuses, and what it takes for a bucket and for metadata."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import RemoteLogMetadataError, UsageError
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.docs.pages import PROJECT
from tests.support.audits import verified_tiered

_SAMPLE: Final = PROJECT / "samples" / "tiered"
_LOG_DIR: Final = _SAMPLE / "log-dir"
_HERE: Final = (str(_SAMPLE),)
_METADATA: Final = ("--tiered-metadata", str(_LOG_DIR))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (_HERE, "name a log dir that has __remote_log_metadata"),
        ((*_HERE, *_METADATA, "--settings", "x"), "--settings: only with --catalog"),
        ((*_HERE, *_METADATA, "--catalog", "no such"), "no catalog"),
        (("a name=no such", *_METADATA), "the name 'a name' may hold only letters"),
        ((*_HERE, *_METADATA, "--stuck-after", "soon"), "--stuck-after: 'soon' is not a duration"),
        ((*_HERE, "--tiered-metadata", str(_SAMPLE)), "no partition of __remote_log_metadata is there"),
        ((*_HERE, "--tiered-metadata", "no.parquet"), "--tiered-metadata no.parquet: it does not exist"),
        (("no such", *_METADATA), "no such: no such directory"),
        ((*_HERE, *_METADATA, "--topics", "none"), "no partition's directory, and the metadata has no remote segment"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(kidx, ["verify-tiered", *arguments], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_what_is_for_a_bucket_is_refused_for_a_log_dir() -> None:
    result = CliRunner().invoke(kidx, ["verify", *_METADATA, str(_LOG_DIR)], standalone_mode=False)
    assert "no bucket of remote segments, for which --tiered-metadata is" in str(result.exception)


def test_metadata_that_was_exported(tmp_path: Path) -> None:
    """To a file: the same is found, where records are there twice, too; another file is refused. A file says nothing of
    log dirs.
    """
    place, file = tmp_path / "metadata.parquet", tmp_path / "twice.parquet"
    exported = ["export", str(_LOG_DIR), "--topics", REMOTE_LOG_METADATA_TOPIC, "--output", str(place)]
    assert CliRunner().invoke(kidx, exported, standalone_mode=False).return_value == 0
    of_log_dir, of_file = (
        verified_tiered(*_HERE, *_METADATA, code=0),
        verified_tiered(*_HERE, "--tiered-metadata", place, code=0),
    )
    rows = pq.read_table(place)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 7)]), file)
    of_twice = verified_tiered(*_HERE, "--tiered-metadata", file, "--tiered-metadata", _LOG_DIR, code=0)
    for each in (of_log_dir, of_file, of_twice):
        del each["metadata"]["places"]
    numbers = [each.pop("numbers") for each in (of_log_dir, of_file, of_twice)]
    assert of_log_dir == of_file == of_twice
    assert (numbers[0], numbers[1]["log_dirs"]) == (numbers[2], [])
    pq.write_table(rows.drop_columns(["value"]), file)
    result = CliRunner().invoke(kidx, ["verify-tiered", *_HERE, "--tiered-metadata", str(file)], standalone_mode=False)
    assert isinstance(result.exception, RemoteLogMetadataError)
    assert "no column value" in str(result.exception)


def test_metadata_partitions_in_several_places(tmp_path: Path) -> None:
    """What belongs to one that is not there is not judged; with both all is."""
    names = [f"{REMOTE_LOG_METADATA_TOPIC}-{number}" for number in range(2)]
    places = [Path(shutil.copytree(_LOG_DIR / name, tmp_path / f"broker-{name[-1]}" / name)) for name in names]
    found = [verified_tiered(*_HERE, "--tiered-metadata", place.parent, code=0) for place in places]
    both = verified_tiered(*_HERE, *(each for place in places for each in ("--tiered-metadata", place)), code=0)
    assert [each["findings"] for each in (*found, both)] == [[], [], []]
    copied = [each["segments"]["COPY_SEGMENT_FINISHED"]["segments"] for each in (*found, both)]
    assert copied[0] + copied[1] == copied[2]
    assert both["not_judged"] == 0
    assert found[1]["not_judged"] or not copied[0]
