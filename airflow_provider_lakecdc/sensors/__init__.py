"""Sensors that wait for the state of tables."""
