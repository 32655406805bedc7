"""Define what lakecdc stores in table metadata, and measure the health of tables from metadata.

Standard library only, so that both Airflow and Spark can import it.
"""
