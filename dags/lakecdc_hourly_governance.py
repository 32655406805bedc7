"""Rewrites delete files and joins small data files every hour.

LAKECDC_CONFIG names the JSON file that says of which tables (see airflow_provider_lakecdc.templates.config); without it
this is an example.
"""

from airflow_provider_lakecdc.templates import hourly_governance_dag, load_config

dag = hourly_governance_dag(load_config())
