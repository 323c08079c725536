"""Questions and answers in an object store: the same files as on disk, and nothing replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.faults.processes import kidx
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore

_QUESTIONS = pa.table(
    {"topic": ["plain-zstd"] * 3, "partition": [0, 0, 1], "offset": [9000, None, 1], "timestamp": [None, -1, None]}
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("seek-files")
    places = ("--index-dir", directory / "index", "--catalog", directory / "catalog")
    assert kidx("build", golden.SAMPLES, *places).code == 0
    return directory / "catalog"


@pytest.fixture
def url(store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    """Questions in the store, as files of all kinds."""
    local = tmp_path / "seek-files"
    local.mkdir()
    (local / "questions.csv").write_text("topic,partition,offset,timestamp\nplain-zstd,0,9000,\nplain-zstd,0,,-1\n")
    with (local / "questions.csv").open("a") as file:
        file.write("plain-zstd,1,1,\n")
    lines = ('"partition": 0, "offset": 9000', '"partition": 0, "timestamp": -1', '"partition": 1, "offset": 1')
    (local / "questions.json").write_text("".join(f'{{"topic": "plain-zstd", {line}}}\n' for line in lines))
    pq.write_table(_QUESTIONS, local / "questions.parquet")
    write_deltalake(local / "questions", _QUESTIONS)
    store.upload(local, "seek-files")
    yield f"s3://{BUCKET}/seek-files"
    for name in list(store.contents("seek-files")):
        store.delete(f"seek-files/{name}")


@pytest.mark.parametrize("kind", [".csv", ".json", ".parquet", ""])
def test_files_are_those_on_disk(kind: str, store: ObjectStore, url: str, catalog: Path, tmp_path: Path) -> None:
    ask = ("seek", "--catalog", catalog, "--queries", f"{url}/questions{kind}")
    here, there = tmp_path / f"answers{kind}", f"{url}/answers{kind}"
    for output in (here, there):
        ended = kidx(*ask, "--output", output)
        assert ended.code == 3 and ended.out.startswith("3 answers, 2 found"), ended
    written = store.contents("seek-files")
    if here.is_file():
        assert written[f"answers{kind}"] == here.read_bytes()
    else:
        [name] = [name for name in written if name.startswith(f"answers{kind}/") and name.endswith(".parquet")]
        [file] = here.glob("*.parquet")
        assert pq.read_table(pa.BufferReader(written[name])) == pq.read_table(file)
    again = kidx(*ask, "--output", there)
    assert (again.code, again.err) == (2, f"error: --output {there}: it is there already; expected a new name\n")


def test_a_wrong_question_there_is_named(url: str, store: ObjectStore, catalog: Path) -> None:
    store.put("seek-files/wrong.csv", b"topic,partition,offset\na,0,1\na,x,1\n")
    for name, what in {
        "wrong.csv": "line 3: partition x, expected a whole number from 0 on; nothing was answered",
        "none.csv": "Path does not exist; expected a file called .csv, .json or .parquet, or a Delta table",
    }.items():
        ended = kidx("seek", "--catalog", catalog, "--queries", f"{url}/{name}", "--output", f"{url}/out.csv")
        assert (ended.code, ended.err) == (2, f"error: --queries {url}/{name}: {what}\n")
