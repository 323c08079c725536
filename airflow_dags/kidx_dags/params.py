"""Params that several DAGs have."""

from __future__ import annotations

from airflow.sdk import Param

from kidx_dags.catalogs import Catalog


def options_param(job: str, default: list[str]) -> Param:
    """More options of a job, a word each."""
    return Param(default, type="array", items={"type": "string"}, description=f"More options of {job}, a word a line.")


def conf_param(catalog: Catalog) -> Param:
    return Param(catalog.conf, type="object", description="Spark's properties, as spark-submit --conf takes them.")
