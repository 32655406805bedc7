"""DAG files to copy into Airflow's DAG folder; a JSON file configures them, see docs/reference/settings.md."""
