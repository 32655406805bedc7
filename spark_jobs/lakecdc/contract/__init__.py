"""Define the job contract: the spec that an operator hands to a job, and the report that the job returns.

Standard library only, so that Airflow's side and Spark's side can both import it.
"""
