"""Enters quarantined messages again when somebody triggers it, by hand or with the button of the page Lakehouse.

The environment variable LAKECDC_CONFIG names the JSON file that says of which tables; a path given to
load_config goes before it.
"""

from airflow_provider_lakecdc.templates import load_config, replay_quarantine_dag

dag = replay_quarantine_dag(load_config())
