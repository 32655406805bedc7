"""The demo: a shop's Postgres is ingested into Iceberg tables under Airflow and compared with them row by row."""
