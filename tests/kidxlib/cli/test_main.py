"""What a shell waits for: names are completed and help is shown without what does the work."""

from __future__ import annotations

from tests.kidxlib.test_library import started


def test_a_shell_completes_commands_without_importing_them() -> None:
    """In a new wheel that would compile for half a minute, while somebody waits for a key."""
    code = """
import sys
import click
from kidxlib.cli.main import kidx
print([item.value for item in kidx.shell_complete(click.Context(kidx), "re")])
print([name for name in sys.modules if name.startswith("kidxlib.commands")])
"""
    assert started(code).splitlines() == ["['recover', 'repair-tiered', 'report', 'retention']", "[]"]


def test_the_help_of_a_command_on_a_catalog_imports_nothing_that_works_on_it() -> None:
    code = """
import sys
from kidxlib.commands import accept, build, compact, compare, forget_source, repair_tiered, report
from kidxlib.commands import retention, seek, tables, verify, verify_tiered
print(sorted({"deltalake", "numba", "pyarrow"} & sys.modules.keys()))
"""
    assert started(code) == "[]"
