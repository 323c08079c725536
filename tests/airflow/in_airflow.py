"""Runs in `.venv-airflow`: loads the DAGs as Airflow does, runs some of them, and says what became of that.

    python -m tests.airflow.in_airflow RESULT [CATALOGS ...] < RUNS

RUNS is a list of objects with what `run` takes, and the file of `catalogs` where that is not the environment's.
RESULT is written, with `dags` and `runs`. What Airflow logs goes to standard output, after a line `RUN n` for each
run. Where files of catalogs are named, the DAGs are loaded with each of them, too, and `import_errors_of` has what
Airflow says to that.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.configuration import conf
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from sqlalchemy import event, select

#: What reading DAG files must not import.
FORBIDDEN = ("pyspark", "kidxlib", "jobs", "delta")


def load() -> tuple[BundleDagBag, dict[str, Any]]:
    directory = Path(conf.get_mandatory_value("core", "dags_folder"))
    bag = BundleDagBag(directory, bundle_path=directory)
    return bag, {
        "import_errors": bag.import_errors,
        "files": [stats.file for stats in bag.dagbag_stats],
        "forbidden": sorted({name.partition(".")[0] for name in sys.modules} & set(FORBIDDEN)),
        "dags": {dag_id: describe(dag) for dag_id, dag in bag.dags.items()},
    }


def describe(dag: DAG) -> dict[str, Any]:
    return {
        "schedule": str(dag.schedule),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "tags": sorted(dag.tags),
        "doc": dag.doc_md,
        "params": sorted(dag.params),
        "waits_for": [[asset.name, asset.uri] for asset in dag.schedule] if isinstance(dag.schedule, list) else [],
        "tasks": [
            {
                "id": task.task_id,
                "downstream": sorted(task.downstream_task_ids),
                "owner": task.owner,
                "pool": task.pool,
                "retries": task.retries,
                "timeout": task.execution_timeout is not None,
                "outlets": [[outlet.name, outlet.uri] for outlet in task.outlets],
                "inlets": [[inlet.name, inlet.uri] for inlet in task.inlets],
                "template_fields": sorted(task.template_fields),
            }
            for task in dag.topological_sort()
        ],
    }


def run(
    dag: DAG,
    *,
    run_after: str | None = None,
    run_conf: dict[str, Any] | None = None,
    mark_success_pattern: str | None = None,
    scheduled: bool = False,
) -> dict[str, Any]:
    """Run a DAG to its end.

    Args:
        run_after: when the run is due; None for now.
        scheduled: as the scheduler would start it; else as if by hand.
    """

    def by_scheduler(mapper: object, connection: object, target: DagRun) -> None:
        target.run_type = DagRunType.SCHEDULED

    if scheduled:
        event.listen(DagRun, "before_insert", by_scheduler)
    try:
        ended = dag.test(
            run_after=None if run_after is None else datetime.fromisoformat(run_after),
            run_conf=run_conf,
            mark_success_pattern=mark_success_pattern,
        )
    finally:
        if scheduled:
            event.remove(DagRun, "before_insert", by_scheduler)
    with create_session() as session:
        of_run = (AssetEvent.source_dag_id == dag.dag_id, AssetEvent.source_run_id == ended.run_id)
        events = session.scalars(select(AssetEvent).where(*of_run)).all()
        return {
            "run_id": ended.run_id,
            "state": ended.state,
            "tasks": {
                each.task_id: [each.state, each.try_number] for each in ended.get_task_instances(session=session)
            },
            "events": [[each.asset.name, each.source_dag_id, each.source_task_id] for each in events],
        }


def import_errors(catalogs: str) -> dict[str, str]:
    """What Airflow says of DAG files that read this file of catalogs."""
    os.environ["KIDX_CATALOGS"] = catalogs
    _, loaded = load()
    errors: dict[str, str] = loaded["import_errors"]
    return errors


def main() -> None:
    _, loaded = load()
    to_run, runs = json.load(sys.stdin), []
    if to_run:
        initdb()
    for number, asked in enumerate(to_run):
        print(f"RUN {number}", flush=True)  # noqa: T201
        if (file := asked.pop("catalogs", None)) is not None:
            os.environ["KIDX_CATALOGS"] = file
        bag, _ = load()  # `DAG.test` leaves a run's params in the DAG
        runs.append(run(bag.dags[asked.pop("dag_id")], **asked))
    _, result, *catalogs = sys.argv
    errors = {each: import_errors(each) for each in catalogs}
    Path(result).write_text(json.dumps({**loaded, "runs": runs, "import_errors_of": errors}))


if __name__ == "__main__":
    main()
