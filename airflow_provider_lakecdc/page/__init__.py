"""The page "Lakehouse" in Airflow: health of tables, governance plans, history of jobs."""
