"""Replay quarantined messages, triggered by hand or with the button of the page Lakehouse.

The environment variable LAKECDC_CONFIG names the JSON configuration; a path passed to load_config overrides it.
"""

from airflow_provider_lakecdc.templates import load_config, replay_quarantine_dag

dag = replay_quarantine_dag(load_config())
