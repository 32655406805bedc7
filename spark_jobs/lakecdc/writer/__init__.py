"""Write files of Iceberg tables with Arrow, inside Python tasks: what a batch, a full load and a log of events share.

``parquet`` tells which tables tasks can write (:func:`~lakecdc.writer.parquet.refusal`) and writes their files,
``transforms`` is how Iceberg makes partition values, ``partitions`` the partitions of a table's new files, and
``stage`` makes Iceberg's objects of what tasks have written, for a commit.
"""
