"""Restore tables to a past moment of their source, from snapshots and history tables."""

from lakecdc.moments.rows import read

__all__ = ["read"]
