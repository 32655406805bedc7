"""Write files of Iceberg tables with Arrow, inside Python tasks: rows, equality deletes, position deletes and vectors.

``parquet`` tells which tables tasks can write (:func:`~lakecdc.writer.parquet.refusal`) and writes their files,
``types`` has Arrow's types of Iceberg's, ``transforms`` is how Iceberg makes partition values, ``partitions`` the
partitions of a table's new files, ``files`` those that a task has open, ``frame`` writes the rows of a DataFrame, and
``stage`` makes Iceberg's objects of what tasks have written, for a commit.

``deletes`` writes the deleted positions of data files, in format v2 by ``position_deletes`` and in v3 by
``deletion_vectors``.
"""
