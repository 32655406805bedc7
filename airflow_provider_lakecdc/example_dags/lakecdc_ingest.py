"""Feeds Iceberg tables with the changes of a source.

The environment variable LAKECDC_CONFIG names the JSON file that says which; a path given to load_config goes before it.
"""

from airflow_provider_lakecdc.templates import ingest_dag, load_config

dag = ingest_dag(load_config())
