"""Feed Iceberg tables with the changes of a source.

LAKECDC_CONFIG names the JSON configuration. This imports the wheel's example DAG file unchanged.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_ingest import dag

__all__ = ["dag"]
