"""Table metadata that lakecdc reads and writes: summaries, positions, watermarks, table health.

Standard library only, so that both Airflow and Spark can import it.
"""
