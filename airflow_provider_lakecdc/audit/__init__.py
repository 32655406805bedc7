"""What jobs have done and how tables have fared, kept as Iceberg tables ``lakecdc.audit`` and ``lakecdc.health``.

Rows are written by the Airflow side through pyiceberg, so that an application that has died has its rows too. What
cannot be written waits beside the documents of jobs, and the next writer delivers it.
"""

from airflow_provider_lakecdc.audit.application import Application, Run, proof_of
from airflow_provider_lakecdc.audit.reading import Trend, health_history, health_trends, history, history_of_task
from airflow_provider_lakecdc.audit.recording import record_application, record_health
from airflow_provider_lakecdc.audit.rows import AuditRow, HealthRow

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
