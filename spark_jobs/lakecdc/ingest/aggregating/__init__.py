"""Aggregate the rows of a source, as its history table has them, into the rows of another table."""
