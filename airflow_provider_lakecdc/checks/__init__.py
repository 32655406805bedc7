"""Checks of a deployment: each module checks one part in seconds, without Spark."""
