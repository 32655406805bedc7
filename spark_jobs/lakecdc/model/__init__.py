"""Define what a change is: plain Python, without a Spark session, a source or Iceberg."""
