"""Split records into cells, and prepare cells with Spark for the tasks that type them.

Values that do not fit are detected, never cut, rounded or made null: the parsers of ``model.columns`` type texts, and
Spark only changes types without loss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakecdc.iceberg.widening import is_wider
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.ingest.formats.messages import as_they_are, from_values, json, place_sql
from lakecdc.model.columns import INTEGER_BYTES
from lakecdc.sql import literal, quoted_column

_TIMES = ("date", "timestamp", "timestamp_ntz")
_NESTED = re.compile(r"(struct|array|map)<|variant$")
# SQL of the problem of a record that is not UTF-8, or null
_NO_TEXT = "CASE WHEN NOT is_valid_utf8(CAST(value AS string)) THEN 'encoding: the record is not UTF-8' END"
#: column with records that Spark cannot parse
BAD = "_lakecdc_bad"
_CARRIED = ("cells", "source", "arrival")
# types that Iceberg lacks
_STORED = {"tinyint": "int", "smallint": "int", "void": "string"}
# no valid time begins with this text
_OTHER_FORMAT = "not in timestamp_format: "


@dataclass(frozen=True)
class Cells:
    """Records split into cells.

    :param frame: see the package.
    :param columns: the members of ``cells`` with their types in the files.
    :param carried: columns of the frame for :attr:`messages`.
    :param messages: creates the message frame of these columns, with further named columns.
    """

    frame: DataFrame
    columns: tuple[Column, ...]
    carried: tuple[str, ...] = (*MESSAGE, "arrival")
    messages: Callable[..., DataFrame] = as_they_are


def with_cells(messages: DataFrame, names: Sequence[str], values: Sequence[str], problem: str) -> Cells:
    """Return text cells from the names and SQL of their columns, and SQL of a record's problem."""
    members = ", ".join(f"{sql} AS {quoted_column(name)}" for name, sql in zip(names, values, strict=True))
    problem_column = f"coalesce({_NO_TEXT}, {problem}) AS problem"
    frame = messages.selectExpr(*MESSAGE, "arrival", f"struct({members}) AS cells", problem_column)
    return Cells(frame, tuple(Column(name, "string") for name in names))


def stored_type(cell: Column, chosen: str | None, known: str | None) -> str:
    """Return the type of a cell's column: the target's choice, else the table's type unless the cell's is wider."""
    own = _STORED.get(cell.type, cell.type)
    if chosen or known is None:
        return chosen or own
    return own if is_wider(known, own) or _NESTED.match(own) and known != "string" else known


def prepared(cell: Column, sql_type: str, timestamp_format: str | None) -> tuple[str | None, bool]:
    """Return the conversion of a cell before its column is typed.

    :param timestamp_format: format of times in text; default: ISO-8601.
    :return: SQL of its value, None if it is unchanged; and whether tasks parse it from text.
    """
    source, is_text = f"cells.{quoted_column(cell.name)}", cell.type == "string"
    text = source if is_text else _text(source, cell.type)
    if cell.type == sql_type:
        return None, False
    if _NESTED.match(sql_type):
        parsed = json(f"nullif(trim({text}), '')")
        return f"try_variant_get({parsed}, '$', {literal(sql_type)})", False
    if timestamp_format and sql_type in _TIMES and cell.type not in _TIMES:
        return _moment(text, sql_type, timestamp_format), True
    if is_text:
        return None, True
    if sql_type == "string":
        return text, False
    if is_wider(cell.type, sql_type) or INTEGER_BYTES.get(cell.type, 8) < INTEGER_BYTES.get(sql_type, 0):
        return f"CAST({source} AS {sql_type})", False
    return text, True


def _moment(text: str, sql_type: str, timestamp_format: str) -> str:
    """Return SQL of a time's text in ISO-8601; a text in another format becomes an invalid time."""
    parsed = f"try_to_timestamp(trim({text}), {literal(timestamp_format)})"
    other = f"concat({literal(_OTHER_FORMAT)}, {text})"
    return f"CASE WHEN trim({text}) != '' THEN coalesce(CAST(CAST({parsed} AS {sql_type}) AS string), {other}) END"


def _text(source: str, cell_type: str) -> str:
    if _NESTED.match(cell_type):
        return f"to_json({source})"
    # Spark's base64 has a line break every 76 characters
    return rf"replace(base64({source}), '\r\n')" if cell_type == "binary" else f"CAST({source} AS string)"


def typed_cells(rows: DataFrame, columns: tuple[Column, ...]) -> Cells:
    """Return the cells of rows.

    :param rows: ``cells``, a struct of the columns; ``source``, the name of their file or table; ``arrival``.
    """
    return Cells(rows.select(*_CARRIED, F.lit(None).cast("string").alias("problem")), columns, _CARRIED, _messages)


def _messages(rows: DataFrame, *more: str) -> DataFrame:
    with_values = rows.withColumn("value", F.to_json("cells"))
    return from_values(with_values.selectExpr("*", place_sql("source")), *more)


def cells_of_json(messages: DataFrame, known: Mapping[str, str]) -> Cells:
    """Return the cells of quarantined rows, as texts of the table's columns."""
    members = StructType([StructField(name, StringType()) for name in (*known, BAD)])
    options = {"columnNameOfCorruptRecord": BAD}
    parsed = messages.withColumn("parsed", F.from_json(F.col("value").cast("string"), members, options))
    texts = [f"parsed.{quoted_column(name)}" for name in known]
    problem = f"CASE WHEN parsed IS NULL OR parsed.{BAD} IS NOT NULL THEN 'not-json: the row is not JSON' END"
    return with_cells(parsed, tuple(known), texts, problem)
