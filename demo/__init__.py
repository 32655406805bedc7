"""The demo: a shop's Postgres flows into Iceberg tables under Airflow, which are compared with it row by row."""
