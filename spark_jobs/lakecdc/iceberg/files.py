"""Files outside of tables, read by the driver through Hadoop's file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_head(spark: SparkSession, uri: str, size: int) -> bytes:
    """Read the first bytes of a file.

    :param uri: its URI, encoded as Spark lists it.
    :param size: maximum number of bytes.
    """
    view = jvm(spark)
    path = view.org.apache.hadoop.fs.Path(view.java.net.URI(uri))
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)
    try:
        return bytes(stream.readNBytes(size))
    finally:
        stream.close()
