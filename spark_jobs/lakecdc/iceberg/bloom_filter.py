"""Spark's Bloom filter over the values of one frame, as a condition on another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.iceberg.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: about two percent false positives
_BITS_PER_VALUE = 8
#: 32 MiB; above it more rows pass, which costs time but never loses rows
_MAX_BITS = 1 << 28


def might_contain(values: DataFrame, hashes: Column, count: int, probe: Column) -> Column:
    """Return a condition that holds for every row whose hash is among the values', and for few others.

    Spark builds such filters for its own joins only where it expects the built side to be selective, which it cannot
    know about delete files.

    :param values: the frame to build the filter from, in a job that runs at once.
    :param hashes: 64-bit hash of its rows.
    :param count: upper bound of its rows.
    :param probe: the same hash of the rows to filter.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    view = jvm(values.sparkSession)
    bits = min(max(count * _BITS_PER_VALUE, 1024), _MAX_BITS)
    filter_built = values.select(hashes.alias("hash"))._jdf.stat().bloomFilter("hash", max(count, 1), bits)
    content = view.java.io.ByteArrayOutputStream()
    filter_built.writeTo(content)
    expressions, types = view.org.apache.spark.sql.catalyst.expressions, view.org.apache.spark.sql.types
    literal = expressions.Literal(content.toByteArray(), types.DataTypes.BinaryType)
    utils = view.org.apache.spark.sql.classic.ExpressionUtils
    condition = expressions.BloomFilterMightContain(literal, utils.expression(probe._jc))
    return ClassicColumn(utils.column(condition))
