"""Sorts, compacts, rewrites manifests and expires snapshots every night.

The environment variable LAKECDC_CONFIG names the JSON file that says of which tables; a path given to
load_config goes before it.
"""

from airflow_provider_lakecdc.templates import load_config, nightly_governance_dag

dag = nightly_governance_dag(load_config())
