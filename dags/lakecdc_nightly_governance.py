"""Sorts, compacts, rewrites manifests and expires snapshots every night.

LAKECDC_CONFIG names the JSON file that says of which tables (see airflow_provider_lakecdc.templates.config); without it
this is an example.
"""

from airflow_provider_lakecdc.templates import load_config, nightly_governance_dag

dag = nightly_governance_dag(load_config())
