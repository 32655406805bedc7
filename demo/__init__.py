"""The demo: a shop's Postgres flows into Iceberg tables under Airflow; an engine that is not Spark compares both."""
