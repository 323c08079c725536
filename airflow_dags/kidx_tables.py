"""A DAG for each catalog: keep its Delta tables small and fast."""

from __future__ import annotations

from inspect import cleandoc

import pendulum
from airflow.sdk import DAG

from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.params import conf_param, options_param
from kidx_dags.spark_job import spark_job, task_defaults


def tables_dag(catalog: Catalog) -> DAG:
    with DAG(
        f"kidx_{catalog.name}_tables",
        schedule=catalog.tables_schedule,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        default_args=task_defaults(catalog),
        tags=["kidx", catalog.name],
        params={
            "tables_options": options_param("compact_index --tables", catalog.tables_options),
            "conf": conf_param(catalog),
        },
        doc_md=cleandoc(f"""
            Maintains the tables of the catalog `{catalog.at_home(catalog.catalog)}`: old rows go, if a policy says so;
            small files become one; files that no version needs go. See docs/airflow.md.
        """),
    ) as dag:
        spark_job(
            catalog,
            "compact_index",
            lambda context: ["--tables", *context["params"]["tables_options"]],
            task_id="maintain",
        )
    return dag


for each in read_catalogs():
    tables_dag(each)
