"""Erase rows from a table and from the tables and files beside it, and prove that no copy is left."""
