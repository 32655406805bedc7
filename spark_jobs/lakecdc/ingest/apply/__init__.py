"""Commit a folded batch to its table, one module per mode."""
