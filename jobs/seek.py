"""Say where offsets and times are: for one question, or for a file of millions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from jobs.common.backend import open_spark
from jobs.common.seek.spark_places import SparkPlaces
from kidxlib.operations.seek.many_questions import run_seek
from kidxlib.operations.seek.options import seek_options
from kidxlib.operations.seek.seek_request import seek_request
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.run.settings import read_settings
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@seek_options
@click.option("--database", metavar="NAME", help="A catalog in a database of Spark's metastore instead.")
@reports_run
def seek(catalog: str | None, database: str | None, settings_file: Path, as_json: bool, **options: Any) -> RunResult:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say; 1 failed.
    """
    request = seek_request(**options)
    context = RunContext.of(read_settings(settings_file), catalog, database, now=None).with_catalog()
    open_backend = partial(open_spark, "seek", context, upgrade=False, changes=False)
    return run_seek(request, open_backend, as_json=as_json, elsewhere=SparkPlaces())


if __name__ == "__main__":
    run(seek, "./spark-submit.sh seek")
