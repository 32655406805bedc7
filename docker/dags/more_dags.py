"""Feeds tables from the sources of the profiles kafka and mariadb; the shipped DAGs maintain these tables too.

The third DAG is that of the button of the page Lakehouse.
"""

from airflow_provider_lakecdc.templates import ingest_dag, load_config, replay_quarantine_dag

events = ingest_dag(load_config("/opt/lakecdc/config/events.json"))
crm = ingest_dag(load_config("/opt/lakecdc/config/crm.json"))
replay = replay_quarantine_dag(load_config())
