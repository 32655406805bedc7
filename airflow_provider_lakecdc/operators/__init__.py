"""Run each job from Airflow: one operator per job, over one base."""
