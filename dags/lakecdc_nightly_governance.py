"""Sort, compact, rewrite manifests and expire snapshots every night.

LAKECDC_CONFIG names the JSON configuration of the tables. This imports the wheel's example DAG file unchanged.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_nightly_governance import dag

__all__ = ["dag"]
