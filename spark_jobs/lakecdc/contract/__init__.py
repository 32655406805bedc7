"""The job contract: what an operator hands to a job and what the job hands back.

Standard library only, so that Airflow's side and Spark's side can both import it.
"""
