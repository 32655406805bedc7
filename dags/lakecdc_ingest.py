"""Feeds Iceberg tables with the changes of a source.

LAKECDC_CONFIG names the JSON file that says which: the DAG file that the wheel brings, as it stands.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_ingest import dag

__all__ = ["dag"]
