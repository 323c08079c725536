"""Lines of a broker's small files, as Java gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.audit.startup.obstacles import KafkaThrows, Obstacle, Thrown, read_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\r\nb\rc\n\nd", ["a", "b", "c", "", "d"]),
        (b"a\n\r", ["a", ""]),
        ("a\u2028b\x0bc\x85".encode(), ["a\u2028b\x0bc\x85"]),  # Python's own splitlines would cut these
    ],
)
def test_lines_end_where_java_ends_them(content: bytes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_lines(tmp_path / "file") == lines


def test_bytes_that_are_no_text_are_an_io_exception(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0\n\xff")
    with pytest.raises(KafkaThrows, match="byte 2: not UTF-8") as raised:
        read_lines(tmp_path / "file")
    assert raised.value.thrown is Thrown.IO


def test_a_file_of_another_user_is_told_from_a_broken_disk() -> None:
    for error, why in (
        (PermissionError(13, "Permission denied"), "not readable by this user"),
        (OSError(5, "Input/output error"), "not read: Input/output error"),
    ):
        assert str(Obstacle.unreadable(Path("f"), error)) == f"f: {why}; what a broker takes from it is not known"
