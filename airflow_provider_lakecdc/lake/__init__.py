"""Reads of tables through pyiceberg: metadata, never rows."""
