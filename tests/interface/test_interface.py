"""What users see stays as it is, but where the changelog says so."""

from __future__ import annotations

from tests.interface.seen import FROZEN, seen


def test_what_users_see_is_what_was_frozen() -> None:
    """`python -m tests.interface.seen` freezes it anew: help, exit codes, keys of JSON objects, metrics and tables."""
    frozen = {str(path.relative_to(FROZEN)): path.read_text() for path in FROZEN.rglob("*.txt")}
    assert dict(seen()) == frozen, "say in CHANGELOG.md what users will see, then run python -m tests.interface.seen"
