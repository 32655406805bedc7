"""Read the envelopes of change events: one module per format, in plain Python, without a Spark session."""
