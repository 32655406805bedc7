"""Restore tables to a past moment of their source, from snapshots and history tables."""

from lakecdc.moments.job import read

__all__ = ["read"]
