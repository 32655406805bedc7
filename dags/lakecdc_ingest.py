"""Feeds Iceberg tables with the changes of a source.

LAKECDC_CONFIG names the JSON file that says which (see airflow_provider_lakecdc.templates.config); without it this is
an example over event files in /data/changes.
"""

from airflow_provider_lakecdc.templates import ingest_dag, load_config

dag = ingest_dag(load_config())
