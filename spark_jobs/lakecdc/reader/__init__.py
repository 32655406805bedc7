"""Read Parquet data files of Iceberg tables with Arrow, inside Python tasks: live rows in the columns of a schema."""
