"""The DAG files are parsed with the Airflow of the provider's tests."""

import tests.airflow_provider_lakecdc.home  # noqa: F401
