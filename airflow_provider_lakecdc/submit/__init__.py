"""Submission of jobs to Spark, their progress, and conversion of their reports."""
