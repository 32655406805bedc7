"""DAG files to copy into Airflow's DAG folder; what they do stands in one JSON file, see docs/settings.md."""
