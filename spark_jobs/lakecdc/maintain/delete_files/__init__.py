"""Turn equality deletes into position deletes (format v2) or deletion vectors (v3), proven before they are published.

A run surveys the position deletes of a tagged snapshot (``survey``), pairs its delete files with data files (``plan``),
finds the rows the equality deletes hit (``match``), writes every position that is deleted in a touched data file into
one new delete file of that data file (``write``), lets Iceberg's reader prove that the same rows are alive
(``verify``), and commits (``job``).
"""
