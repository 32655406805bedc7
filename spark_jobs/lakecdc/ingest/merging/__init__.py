"""Merge the events of a batch with the rows that a table has, by the rules of the target's setting ``merge``."""
