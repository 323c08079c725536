"""What `docs/catalog.md` says of tables and columns, and the README of tables, from `jobs/common/tables.py`:
python -m tests.docs.render
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from jobs.common.tables import CATALOG_VERSION, TABLES, Table
from tests.docs.pages import CATALOG_PAGE, PROJECT, read

BEGIN: Final = "<!-- Made from jobs/common/tables.py by `python -m tests.docs.render`; do not edit. -->\n"
END: Final = "<!-- End of what is made. -->\n"
README: Final = "README.md"

_INDEX_TREE: Final = (
    "var/index/",
    "├── txn-mixed-0/",
    "│   ├── 00000000000000000000.index",
    "│   ├── 00000000000000000000.timeindex",
    "│   ├── 00000000000000000084.index",
    "│   ├── 00000000000000000084.timeindex",
    "│   ├── 00000000000000000084.txnindex",
    "│   └── …",
    "└── …",
)
_TREE_WIDTH: Final = 40


def rendered(name: str) -> str:
    """The page of that name with the part between the two markers made anew."""
    before, _, rest = read(name).partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(RENDERED[name]())
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def _trees() -> Iterator[str]:
    """What the README's first command makes: index files on the left, tables on the right."""
    widest = max(len(table.name) for table in TABLES)
    tables = [f"├── {table.name + '/':<{widest + 2}} {_first_words(table)}" for table in TABLES]
    tables[-1] = tables[-1].replace("├", "└")
    yield "```text"
    for left, right in zip_longest(_INDEX_TREE, ("var/catalog/", *tables), fillvalue=""):
        yield f"{left:<{_TREE_WIDTH}} {right}".rstrip()
    yield "```"
    yield ""


def _first_words(table: Table) -> str:
    """What a table holds, in a few words."""
    words = re.split("[,:.]", table.comment, maxsplit=1)[0].replace("One row", "a row")
    return words[0].lower() + words[1:]


def _tables() -> Iterator[str]:
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


#: What stands between the markers of which page.
RENDERED: Final = {README: _trees, CATALOG_PAGE: _tables}

if __name__ == "__main__":
    for name in RENDERED:
        (PROJECT / name).write_text(rendered(name))
