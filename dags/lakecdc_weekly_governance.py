"""Expires old rows, looks for orphan files and computes statistics every week.

LAKECDC_CONFIG names the JSON file that says of which tables: the DAG file that the wheel brings, as it stands.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_weekly_governance import dag

__all__ = ["dag"]
