"""A DAG for each catalog: keep its Delta tables small and fast."""

from __future__ import annotations

from airflow.sdk import DAG

from kidx_dags.catalog_dag import catalog_dag, options_param
from kidx_dags.catalogs import Catalog, read_catalogs
from kidx_dags.spark_job import spark_job


def tables_dag(catalog: Catalog) -> DAG:
    with catalog_dag(
        catalog,
        "tables",
        catalog.tables_schedule,
        params={"tables_options": options_param("compact_index --tables", catalog.tables_options)},
        doc=f"""
            Maintains the tables of the catalog `{catalog.at_home(catalog.catalog)}`: old rows go, if a policy says so;
            small files become one; files that no version needs go. See docs/airflow.md.
        """,
    ) as dag:
        spark_job(
            catalog,
            "compact_index",
            lambda context: ["--tables", *context["params"]["tables_options"]],
            task_id="maintain",
        )
    return dag


for catalog in read_catalogs():
    tables_dag(catalog)
