"""Rewrite data files with Arrow in tasks, or by Iceberg's reader and writer if tasks cannot."""
