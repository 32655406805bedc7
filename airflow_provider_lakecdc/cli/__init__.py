"""The command line: ``airflow lakecdc …``, and the same as ``python -m airflow_provider_lakecdc …``."""
