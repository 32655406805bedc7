"""Airflow provider that feeds Apache Iceberg tables with change data and keeps them fast.

Nothing is imported here: every Airflow component reads the provider's description, and that has to stay cheap.
"""
