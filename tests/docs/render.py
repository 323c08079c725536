"""What `docs/catalog.md` says of tables and columns, from `jobs/common/tables.py`: python -m tests.docs.render"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jobs.common.tables import CATALOG_VERSION, TABLES, Table
from tests.docs.pages import CATALOG_PAGE, PROJECT, read

BEGIN: Final = "<!-- Made from jobs/common/tables.py by `python -m tests.docs.render`; do not edit. -->\n"
END: Final = "<!-- End of what is made. -->\n"


def rendered(page: str) -> str:
    """The page with the part between the two markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(_lines())
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def _lines() -> Iterator[str]:
    yield f"These are the tables of catalog version {CATALOG_VERSION}."
    yield ""
    for table in TABLES:
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield table.comment
    yield ""
    clustered = f" Files are clustered by {_names(table.cluster_by)}." if table.cluster_by else ""
    yield f"Key: {_names(table.key)}.{clustered}"
    yield ""
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for column in table.columns:
        null = "" if column.nullable else " not null"
        yield f"| `{column.name}` | `{column.type.simpleString()}`{null} | {column.comment.replace('|', '&#124;')} |"
    yield ""


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)


if __name__ == "__main__":
    (PROJECT / CATALOG_PAGE).write_text(rendered(read(CATALOG_PAGE)))
