"""Define what lakecdc stores in table metadata, and measure the health of tables from metadata.

Standard library only, so that Airflow's side and Spark's side can both import it.
"""
