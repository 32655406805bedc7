"""Sorts, compacts, rewrites manifests and expires snapshots every night.

LAKECDC_CONFIG names the JSON file that says of which tables: the DAG file that the wheel brings, as it stands.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_nightly_governance import dag

__all__ = ["dag"]
