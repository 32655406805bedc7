"""Rewrite delete files and compact small data files every hour.

LAKECDC_CONFIG names the JSON configuration of the tables. This imports the wheel's example DAG file unchanged.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_hourly_governance import dag

__all__ = ["dag"]
