"""Triggers of the deferrable sensors."""
