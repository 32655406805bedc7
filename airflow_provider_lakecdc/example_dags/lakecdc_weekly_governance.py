"""Expire old rows, find orphan files and compute statistics every week.

The environment variable LAKECDC_CONFIG names the JSON configuration; a path passed to load_config overrides it.
"""

from airflow_provider_lakecdc.templates import load_config, weekly_governance_dag

dag = weekly_governance_dag(load_config())
