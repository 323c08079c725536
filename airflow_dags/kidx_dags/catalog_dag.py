"""The parts that the DAGs of a catalog have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from inspect import cleandoc
from typing import Final

import pendulum
from airflow.sdk import DAG, Context, Param

from kidx_dags.catalogs import Catalog

_log: Final = logging.getLogger(__name__)


def catalog_dag(catalog: Catalog, what: str, schedule: str, params: Mapping[str, Param], doc: str) -> DAG:
    """A DAG of a catalog, without its tasks. `what` ends its name, `schedule` is cron's, and `doc` is Markdown. Every
    DAG also has the param of Spark's properties.
    """
    return DAG(
        f"kidx_{catalog.name}_{what}",
        schedule=schedule,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        default_args={
            "owner": catalog.owner,
            "retries": catalog.retries,
            "retry_delay": timedelta(minutes=catalog.retry_minutes),
            "execution_timeout": timedelta(hours=catalog.timeout_hours),
            "on_failure_callback": say_what_failed,
        },
        tags=["kidx", catalog.name],
        params={
            **params,
            "conf": Param(
                catalog.conf, type="object", description="Spark's properties, as spark-submit --conf takes them."
            ),
        },
        doc_md=cleandoc(doc),
    )


def options_param(job: str, default: list[str]) -> Param:
    return Param(default, type="array", items={"type": "string"}, description=f"More options of {job}, a word a line.")


def say_what_failed(context: Context) -> None:
    """Write one message to the task's log: the task, its run, and the exception, which names segments."""
    task = context["task_instance"]
    _log.error("%s.%s of %s failed: %s", task.dag_id, task.task_id, task.run_id, context.get("exception"))
