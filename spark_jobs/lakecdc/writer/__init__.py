"""Write files of Iceberg tables with Arrow, inside Python tasks: rows, equality deletes, position deletes and vectors.

``frame`` writes the rows of a DataFrame. :func:`lakecdc.writer.parquet.refusal` returns why Iceberg's own writer has to
write a table instead. ``deletes`` writes the deleted positions of data files.
"""
