"""Answer one question about a machine or a source, in a process of its own without Spark."""
