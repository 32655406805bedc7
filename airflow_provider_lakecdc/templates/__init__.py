"""Make DAGs from a configuration file.

A DAG file needs three lines::

    from airflow_provider_lakecdc.templates import ingest_dag, load_config

    dag = ingest_dag(load_config())
"""

from airflow_provider_lakecdc.operators.plan import groups_of_tables
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention, SparkConfig, load_config, parse_config
from airflow_provider_lakecdc.templates.governance import (
    hourly_governance_dag,
    nightly_governance_dag,
    weekly_governance_dag,
)
from airflow_provider_lakecdc.templates.ingest import ingest_dag, replay_quarantine_dag
from airflow_provider_lakecdc.templates.schedules import Schedules

__all__ = [
    "LakeConfig",
    "Retention",
    "Schedules",
    "SparkConfig",
    "groups_of_tables",
    "hourly_governance_dag",
    "ingest_dag",
    "load_config",
    "nightly_governance_dag",
    "parse_config",
    "replay_quarantine_dag",
    "weekly_governance_dag",
]
