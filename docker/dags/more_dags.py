"""Feeds tables from the sources of the profiles kafka and mariadb; the shipped DAGs maintain these tables too."""

from airflow_provider_lakecdc.templates import ingest_dag, load_config

events = ingest_dag(load_config("/opt/lakecdc/config/events.json"))
crm = ingest_dag(load_config("/opt/lakecdc/config/crm.json"))
