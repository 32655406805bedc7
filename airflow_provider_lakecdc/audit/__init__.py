"""The Iceberg tables ``lakecdc.audit`` (what jobs did) and ``lakecdc.health`` (how healthy tables were).

The Airflow side writes the rows through pyiceberg, so a crashed application has rows too. Rows that cannot be
written wait in an outbox beside the jobs' documents, and the next writer delivers them.
"""

from airflow_provider_lakecdc.audit.application import Application, Run, proof_of
from airflow_provider_lakecdc.audit.lake_tables import AuditRow, HealthRow
from airflow_provider_lakecdc.audit.outbox import record_application, record_health
from airflow_provider_lakecdc.audit.reading import Trend, health_history, health_trends, history, history_of_task

__all__ = [
    "Application",
    "AuditRow",
    "HealthRow",
    "Run",
    "Trend",
    "health_history",
    "health_trends",
    "history",
    "history_of_task",
    "proof_of",
    "record_application",
    "record_health",
]
