"""Airflow connections as the job contract wants them."""
