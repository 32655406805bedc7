"""Removal of files below a table's location that its metadata does not reference."""
