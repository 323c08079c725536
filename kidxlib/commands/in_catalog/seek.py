"""`kidx seek --catalog`: the seeks of ./spark-submit.sh seek, by this machine's processes."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kidxlib.operations.seek.one_question import answers_of_catalog, not_asked_of, result_of
from kidxlib.operations.seek.seek_request import seek_request
from kidxlib.run.catalog_place import absolute, ensure_catalog_exists
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.seek import show_answers


def seek_in_catalog(
    catalog: str, *, settings_file: Path, reads_settings: bool, processes: int | None, as_json: bool, **options: Any
) -> RunResult:
    """Answer what a catalog is asked.

    Args:
        reads_settings: whether a settings file was named. It has nothing for a seek whose catalog is given, so only
            mistakes in it count.
        processes: how many answer; None for one a core.
        options: those of `seek_request`.
    """
    request = seek_request(**options)
    if reads_settings:
        from kidxlib.run.settings import read_settings

        read_settings(settings_file)
    path = absolute(catalog)
    ensure_catalog_exists(path)
    question = request.question
    if question is not None and request.output is None and request.consumer_group_csv is None:
        # Who asks one thing does not wait for what many questions import.
        tables = DeltaTables(path)
        answers = answers_of_catalog(tables, question, request.source)
        others = not_asked_of(tables, question, request.source, answers)
        show_answers(answers, as_json, question.asked, is_wide=question.is_wide, left_out=others.as_json())
        others.show()
        return result_of(answers, lacks=others.is_problem)
    from kidxlib.operations.local import open_local
    from kidxlib.operations.seek.many_questions import run_seek

    context = RunContext(catalog=path, database=None, now=datetime.now(UTC), event_log_dir=None)
    return run_seek(request, partial(open_local, context, processes, must_exist=True), as_json=as_json)
