"""Options that several jobs have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from jobs.common.settings import SETTINGS_FILE
from kidxlib.cli import shared_options as of_kidx

#: The sources to read, each a folder.
sources: Final = click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A Kafka log dir or one partition's folder, or such a prefix s3://BUCKET/PREFIX; repeatable, then with a name "
    "each. [default: the bundled sample, where no other place is named]",
)
sample: Final = click.option("--sample", is_flag=True, help="Read the bundled sample.")
topics_to_read: Final = click.option(
    "--topics", metavar="REGEX", help="Only topics whose full name matches. [settings: build.topics]"
)

#: The sources of a catalog, each by its name.
cataloged_sources: Final = click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source; repeatable. [default: all]"
)
cataloged_topics: Final = click.option("--topics", metavar="REGEX", help="Only topics whose full name matches.")

catalog: Final = click.option(
    "--catalog", metavar="DIR", help="Folder of the catalog's Delta tables. [settings: build.catalog]"
)
database: Final = click.option(
    "--database", metavar="NAME", help="The catalog is in a database of Spark's metastore instead."
)
settings_file: Final = click.option(
    "--settings", "settings_file", type=click.Path(path_type=Path), default=SETTINGS_FILE, help="The settings file."
)
time_to_record: Final = click.option(
    "--now", metavar="TIME", help="The time to record: ISO 8601 with a zone, or ms since the epoch."
)
as_json: Final = of_kidx.as_json
