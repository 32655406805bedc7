"""What lakecdc reads from and writes into table metadata: summaries, positions, watermarks, table health.

Standard library only, so that Airflow's side and Spark's side can both import it.
"""
