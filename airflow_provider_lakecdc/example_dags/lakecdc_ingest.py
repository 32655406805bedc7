"""Feed Iceberg tables with the changes of a source.

The environment variable LAKECDC_CONFIG names the JSON configuration; a path passed to load_config overrides it.
"""

from airflow_provider_lakecdc.templates import ingest_dag, load_config

dag = ingest_dag(load_config())
