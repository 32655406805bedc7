"""Report jobs to others: metrics, OpenLineage, assets."""
