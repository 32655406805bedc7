"""Compare the shop's tables with its database, as the last step of the demo; it runs when triggered."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from airflow_provider_lakecdc.operators.reconcile import ReconcileOperator
from airflow_provider_lakecdc.templates import load_config

_config = load_config()

with DAG(
    f"{_config.dag_id_prefix}_reconcile",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags={"lakecdc", "reconcile", *_config.tags},
    doc_md=__doc__,
) as dag:
    ReconcileOperator(
        task_id="reconcile",
        source=_config.source,
        source_conn_id=_config.source_conn_id,
        targets=_config.complete_targets,
        catalog_conn_id=_config.catalog,
        # writes are over, and differences are shown
        max_wait=0,
        fail_on=(),
        **_config.spark.arguments(),
    )
