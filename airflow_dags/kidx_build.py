"""A DAG for each catalog: build its indexes, audit them, compact them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Param, TriggerRule, chain
from airflow.sdk.exceptions import AirflowSkipException

from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import SparkJob, fails_on_problems, spark_job


def _sources(params: Mapping[str, Any]) -> list[str]:
    named = [word for source in params["sources"] for word in ("--source", source)]
    return [*named, "--topics", params["topics"]]


def _audited_all(catalog: Catalog) -> Callable[..., None]:
    """Who waits for the asset takes the whole catalog for audited."""
    usual = {"sources": catalog.sources, "topics": catalog.topics, "audit_options": catalog.audit_options}

    def audited_all(params: Mapping[str, Any]) -> None:
        if others := [name for name, value in usual.items() if params[name] != value]:
            raise AirflowSkipException(
                f"the asset {catalog.asset.name} is not updated: this run audited by other {', '.join(others)} "
                "than the catalog's table has"
            )

    return audited_all


def _params(catalog: Catalog) -> dict[str, Param]:
    """What a run may be given; by default what the catalog's table says."""
    return {
        "sources": Param(
            catalog.sources,
            type="array",
            items={"type": "string"},
            description="[NAME=]DIR of each source, one a line; at least one.",
        ),
        "topics": Param(catalog.topics, type="string", description="Only topics whose full name matches."),
        "build_options": options_param("build_index", catalog.build_options),
        "audit_options": options_param("verify_index", catalog.audit_options),
        "compact_options": options_param("compact_index", catalog.compact_options),
    }


def _doc(catalog: Catalog) -> str:
    return f"""
        Keeps the catalog `{catalog.at_home(catalog.catalog)}` up to date.

        - **build** indexes what is new or has changed since the last run.
        - **audit** checks every log, and every index against its log.
        - **audited_all** updates the asset `{catalog.asset.name}` if the audit found no problems. A run that was
          given other `sources`, `topics` or `audit_options` does not update it.
        - **compact** makes the indexes of cold segments smaller.
        - **report** writes the page that the key `report` names; where it names none, there is no such task.
        - **no_problems** fails unless all three found no problems.

        A task that ends with `ProblemsFoundError` has done its work and found problems; its log names them. It is
        not tried again, and the tasks after it run all the same. The run fails at its end, and so does each later
        run until the damage is mended or accepted. See docs/airflow.md.
    """


def _index_dir(catalog: Catalog) -> list[str]:
    return ["--index-dir", catalog.at_home(catalog.index_dir)] if catalog.index_dir else []


def _build(catalog: Catalog) -> SparkJob:
    index_dir = _index_dir(catalog) or ["--in-place"]
    return spark_job(
        catalog,
        "build_index",
        lambda context: [*_sources(context["params"]), *index_dir, *context["params"]["build_options"]],
        task_id="build",
    )


def _audit(catalog: Catalog) -> SparkJob:
    index_dir = _index_dir(catalog)
    return spark_job(
        catalog,
        "verify_index",
        lambda context: [*_sources(context["params"]), *index_dir, *context["params"]["audit_options"]],
        task_id="audit",
        after="build",
    )


def _compact(catalog: Catalog) -> SparkJob:
    return spark_job(
        catalog,
        "compact_index",
        lambda context: ["--topics", context["params"]["topics"], *context["params"]["compact_options"]],
        task_id="compact",
        after="audit",
    )


def _report(catalog: Catalog) -> SparkJob:
    return spark_job(
        catalog,
        "report",
        lambda context: ["--output", catalog.at_home(catalog.report)],
        task_id="report",
        after="build",  # whatever audit and compaction found: the page shows it
    )


def build_dag(catalog: Catalog) -> DAG:
    with catalog_dag(catalog, "build", catalog.build_schedule, params=_params(catalog), doc=_doc(catalog)) as dag:
        build, audit = _build(catalog), _audit(catalog)
        audited_all = PythonOperator(
            task_id="audited_all",
            python_callable=_audited_all(catalog),
            outlets=[catalog.asset],  # of what was only built nobody knows yet whether it is right
        )
        compact = _compact(catalog)
        no_problems = PythonOperator(
            task_id="no_problems",
            python_callable=fails_on_problems(["build", "audit", "compact"]),
            trigger_rule=TriggerRule.ALL_DONE,  # the last task decides what becomes of a run
            retries=0,
        )
        report = [_report(catalog)] if catalog.report else []
        chain(build, audit, audited_all, compact, *report, no_problems)
    return dag


for each in read_catalogs():
    build_dag(each)
