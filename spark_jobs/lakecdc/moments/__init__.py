"""Past moments of tables, rebuilt from their snapshots and the events in their history tables."""

from lakecdc.moments.rows import read

__all__ = ["read"]
