"""Airflow provider that feeds Apache Iceberg tables with change data and maintains them.

It imports nothing: every Airflow component imports it for the provider's description.
"""
