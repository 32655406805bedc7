"""Slowly changing dimensions: the versions of each row, with the time for which each held."""
