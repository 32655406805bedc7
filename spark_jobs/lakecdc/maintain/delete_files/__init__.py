"""Turn equality deletes into position deletes (format v2) or deletion vectors (v3), proven before they are published.

A run surveys the position deletes of a tagged snapshot and pairs its delete files with data files (``plan``), finds the
rows that equality deletes match (``lakecdc.key_search.match``), writes every deleted position of a touched data file
into one new delete file (``lakecdc.writer.deletes``), proves with Iceberg's reader that the same rows are live
(``verify``), and commits (``job``).
"""
