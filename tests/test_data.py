"""The golden files are the ones that Kafka wrote."""

from __future__ import annotations

import hashlib

from tests.support.logs.golden import DATA


def test_golden_files_are_untouched() -> None:
    """None changed, missing or added: a test against an edited file would prove nothing."""
    files = (path for path in DATA.rglob("*") if path.is_file() and path.parent != DATA)
    found = {path.relative_to(DATA).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    lines = (line.split("  ") for line in (DATA / "manifest.sha256").read_text().splitlines())
    assert found == {name: digest for digest, name in lines}
