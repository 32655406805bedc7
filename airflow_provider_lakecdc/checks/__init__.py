"""Check whether everything that jobs need is there, in seconds and without Spark."""
