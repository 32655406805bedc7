"""Governance without Spark: assessment of tables, plans, alerts."""
