"""Airflow connections as parts of job specs."""
