"""Handing on what has changed in tables, to other tables and to folders of files."""
