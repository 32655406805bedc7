"""Aggregate the rows of a source, from its history table, into the rows of another table."""
