"""Operators, one per job."""
