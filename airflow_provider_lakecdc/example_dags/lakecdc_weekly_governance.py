"""Expires old rows, looks for orphan files and computes statistics every week.

The environment variable LAKECDC_CONFIG names the JSON file that says of which tables; a path given to
load_config goes before it.
"""

from airflow_provider_lakecdc.templates import load_config, weekly_governance_dag

dag = weekly_governance_dag(load_config())
