"""Provide DAG files to copy into Airflow's DAG folder; one JSON file configures them, see docs/settings.md."""
