"""Rewriting of data files: with Arrow in tasks, or by Iceberg's reader and writer where it has to be."""
