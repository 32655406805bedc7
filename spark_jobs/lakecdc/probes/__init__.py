"""Programs that answer one question about a machine or a source without Spark."""
