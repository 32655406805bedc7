"""Provide the command line ``airflow lakecdc …``, also as ``python -m airflow_provider_lakecdc …``."""
