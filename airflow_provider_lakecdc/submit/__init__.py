"""Submission of jobs to Spark, their documents and progress, and conversion of their reports."""
