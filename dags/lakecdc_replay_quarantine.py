"""Enters quarantined messages again when somebody triggers it, by hand or with the button of the page Lakehouse.

LAKECDC_CONFIG names the JSON file that says of which tables: the DAG file that the wheel brings, as it stands.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_replay_quarantine import dag

__all__ = ["dag"]
