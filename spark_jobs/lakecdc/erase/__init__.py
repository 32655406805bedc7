"""Erasure of rows from a table and the tables beside it, with proof."""
