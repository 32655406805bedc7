"""Reporting of jobs to other systems: metrics, OpenLineage, assets."""
