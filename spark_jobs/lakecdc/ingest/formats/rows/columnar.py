"""Records with types of their own: rows of Parquet files and of a database; kept aside, one is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakecdc.ingest import change
from lakecdc.ingest.formats.messages import from_values, place_sql
from lakecdc.ingest.formats.rows.cells import Cells, with_cells
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAD = "_lakecdc_bad"
_CARRIED = ("cells", "source", "arrival")


def typed_cells(rows: DataFrame, columns: tuple[change.Column, ...]) -> Cells:
    """Return the cells of rows.

    :param rows: ``cells``, a struct of the columns; ``source``, the name of their file or table; ``arrival``.
    """
    return Cells(rows.select(*_CARRIED, F.lit(None).cast("string").alias("problem")), columns, _CARRIED, _messages)


def _messages(rows: DataFrame, *more: str) -> DataFrame:
    with_values = rows.withColumn("value", F.to_json("cells"))
    return from_values(with_values.selectExpr("*", place_sql("source")), *more)


def cells_of_json(messages: DataFrame, known: Mapping[str, str]) -> Cells:
    """Return the cells of rows that were kept aside, as texts of the table's columns."""
    members = StructType([StructField(name, StringType()) for name in (*known, _BAD)])
    options = {"columnNameOfCorruptRecord": _BAD}
    parsed = messages.withColumn("parsed", F.from_json(F.col("value").cast("string"), members, options))
    texts = [f"parsed.{quoted_column(name)}" for name in known]
    problem = f"CASE WHEN parsed IS NULL OR parsed.{_BAD} IS NOT NULL THEN 'not-json: the row is no JSON' END"
    return with_cells(parsed, tuple(known), texts, problem)
