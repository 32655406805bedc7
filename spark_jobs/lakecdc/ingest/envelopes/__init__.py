"""Read the envelopes of change events: one module a format, in plain Python, without a Spark session."""
