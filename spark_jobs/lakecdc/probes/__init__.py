"""Answer one question about a machine or a source, in a separate process without Spark."""
