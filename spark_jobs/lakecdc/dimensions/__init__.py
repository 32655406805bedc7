"""Slowly changing dimensions: the versions of each row, with their validity."""
