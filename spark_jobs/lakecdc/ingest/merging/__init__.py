"""Merge the events of a batch with a table's rows, by the rules of the target's setting ``merge``."""
