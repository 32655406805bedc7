"""Erase rows from a table and from all that is kept beside it, and prove that they are gone."""
