"""A DAG for each catalog: build its indexes, and compact them."""

from __future__ import annotations

from airflow.sdk import DAG, chain

from kidx_dags.build_job import build_job, build_params
from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import SparkJob, no_problems, spark_job


def _doc(catalog: Catalog) -> str:
    return f"""
        Keeps the catalog `{catalog.at_home(catalog.catalog)}` up to date.

        - **build** indexes what is new or has changed since the last run.
        - **compact** makes the indexes of cold segments smaller.
        - **report** writes the page that the key `report` names; where it names none, there is no such task.
        - **no_problems** fails unless both found no problems.

        What does not change is read again by the DAG of the audit alone. A task that ends with `ProblemsFoundError`
        has done its work and found problems; its log names them. It is not tried again, and the tasks after it run
        all the same. The run fails at its end, and so does each later run until the damage is mended or accepted. See
        docs/airflow.md.
    """


def _compact(catalog: Catalog) -> SparkJob:
    return spark_job(
        catalog,
        "compact_index",
        lambda context: ["--topics", context["params"]["topics"], *context["params"]["compact_options"]],
        task_id="compact",
        after="build",
    )


def _report(catalog: Catalog) -> SparkJob:
    return spark_job(
        catalog,
        "report",
        lambda context: ["--output", catalog.at_home(catalog.report)],
        task_id="report",
        after="build",  # whatever the outcome of compaction: the page shows it
    )


def build_dag(catalog: Catalog) -> DAG:
    params = {**build_params(catalog), "compact_options": options_param("compact_index", catalog.compact_options)}
    with catalog_dag(catalog, "build", catalog.build_schedule, params=params, doc=_doc(catalog)) as dag:
        build, compact = build_job(catalog), _compact(catalog)
        last = no_problems(["build", "compact"])
        report = [_report(catalog)] if catalog.report else []
        chain(build, compact, *report, last)
    return dag


for catalog in read_catalogs():
    build_dag(catalog)
