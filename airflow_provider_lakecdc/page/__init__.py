"""The page "Lakehouse" of Airflow: how tables fare, what governance would do, what jobs have done."""
