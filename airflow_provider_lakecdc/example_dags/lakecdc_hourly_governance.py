"""Rewrites delete files and joins small data files every hour.

The environment variable LAKECDC_CONFIG names the JSON file that says of which tables; a path given to
load_config goes before it.
"""

from airflow_provider_lakecdc.templates import hourly_governance_dag, load_config

dag = hourly_governance_dag(load_config())
