"""Rewrite delete files and compact small data files every hour.

The environment variable LAKECDC_CONFIG names the JSON configuration; a path passed to load_config overrides it.
"""

from airflow_provider_lakecdc.templates import hourly_governance_dag, load_config

dag = hourly_governance_dag(load_config())
