"""Sort, compact, rewrite manifests and expire snapshots every night.

The environment variable LAKECDC_CONFIG names the JSON configuration; a path passed to load_config overrides it.
"""

from airflow_provider_lakecdc.templates import load_config, nightly_governance_dag

dag = nightly_governance_dag(load_config())
