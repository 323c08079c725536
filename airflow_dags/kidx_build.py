"""A DAG for each catalog: build its indexes, audit them, compact them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Param, TriggerRule, chain

from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import fails_unless_well, spark_job


def _sources(params: Mapping[str, Any]) -> list[str]:
    named = [word for source in params["sources"] for word in ("--source", source)]
    return [*named, "--topics", params["topics"]]


def build_dag(catalog: Catalog) -> DAG:
    index_dir = ["--index-dir", catalog.at_home(catalog.index_dir)] if catalog.index_dir else []

    with catalog_dag(
        catalog,
        "build",
        catalog.build_schedule,
        params={
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
        },
        doc=f"""
            Keeps the catalog `{catalog.at_home(catalog.catalog)}` up to date.

            - **build** indexes what is new or has changed since the last run.
            - **audit** holds every index to its log. If all is well, the asset `{catalog.asset.name}` is updated.
            - **compact** makes the indexes of cold segments smaller.
            - **all_well** fails unless all three found everything well.

            A task that ends with `NotWellError` has done its work and found problems; its log names them. It is not
            tried again, and the tasks after it run all the same. The run fails at its end, and so does each later run
            until the damage is mended or accepted. See docs/airflow.md.
        """,
    ) as dag:
        build = spark_job(
            catalog,
            "build_index",
            lambda context: [
                *_sources(context["params"]),
                *(index_dir or ["--in-place"]),
                *context["params"]["build_options"],
            ],
            task_id="build",
        )
        audit = spark_job(
            catalog,
            "verify_index",
            lambda context: [*_sources(context["params"]), *index_dir, *context["params"]["audit_options"]],
            task_id="audit",
            outlets=[catalog.asset],  # of what was only built nobody knows yet whether it is right
            after="build",
        )
        compact = spark_job(
            catalog,
            "compact_index",
            lambda context: ["--topics", context["params"]["topics"], *context["params"]["compact_options"]],
            task_id="compact",
            after="audit",
        )
        all_well = PythonOperator(
            task_id="all_well",
            python_callable=fails_unless_well(["build", "audit", "compact"]),
            trigger_rule=TriggerRule.ALL_DONE,  # the last task decides what becomes of a run
            retries=0,
        )
        chain(build, audit, compact, all_well)
    return dag


for each in read_catalogs():
    build_dag(each)
