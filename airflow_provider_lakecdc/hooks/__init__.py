"""Turn Airflow connections into the catalogs and sources of the job contract."""
