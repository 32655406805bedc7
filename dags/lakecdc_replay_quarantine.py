"""Replay quarantined messages, triggered by hand or with the button of the page Lakehouse.

LAKECDC_CONFIG names the JSON configuration of the tables. This imports the wheel's example DAG file unchanged.
"""

from airflow_provider_lakecdc.example_dags.lakecdc_replay_quarantine import dag

__all__ = ["dag"]
