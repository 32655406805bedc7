"""Expire old rows, find orphan files and compute statistics every week.

LAKECDC_CONFIG names the JSON configuration of the tables. This imports the wheel's example DAG file unchanged.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_weekly_governance import dag

__all__ = ["dag"]
