"""Format ``xml``: a record is an element; children and attributes are its columns, nested ones stay nested.

Records are cut out of the text before parsing, so a broken one does not affect others and is quarantined unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from lakecdc.contract.sources.formats import XmlSettings
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.rows.cells import BAD, Cells, with_cells
from lakecdc.sql import parsed_type, quoted_column, sql_type


def record_pattern(row_tag: str) -> str:
    """Return the regular expression (Java) of one record, or of a comment; an unclosed one matches the rest."""
    tag = re.escape(row_tag)
    element = rf"<{tag}(?=[\s/>])(?:[^>]*/>|[^>]*+(?:\z|>.*?(?:</{tag}\s*>|\z)))"
    return rf"(?s)<!--.*?(?:-->|\z)|{element}"


def is_comment(record: str) -> Expression:
    """Check whether a match of the pattern is a complete comment; an incomplete one may hide records.

    A comment cannot contain two hyphens (XML 1.0, section 2.5): a truncated one extends to the end of another.
    """
    text, ends = F.col(record), len("<!---->")
    within = text.substr(F.lit(len("<!--") + 1), F.length(text) - ends)
    whole = text.endswith("-->") & (F.length(text) >= ends) & ~within.contains("--")
    return F.is_valid_utf8(text) & text.startswith("<!--") & whole


def schema_of(spark: SparkSession, files: list[str], settings: XmlSettings) -> StructType:
    """Return the columns of files, all leaves text."""
    # records of a file that is not UTF-8 are quarantined and have no columns
    own = {"rowTag": settings.row_tag, "inferSchema": "false", "ignoreCorruptFiles": "true"}
    reader = spark.read.format("xml").options(**_options(settings), **own)
    return StructType([f for f in reader.load(files).schema.fields if f.name != BAD])


def cells(messages: DataFrame, settings: XmlSettings, known: Mapping[str, str], schema: StructType | None) -> Cells:
    columns = _columns(known, schema)
    members = [*(StructField(c.name, parsed_type(c.type)) for c in columns), StructField(BAD, StringType())]
    element = F.from_xml(F.expr("CAST(value AS string)"), StructType(members), _options(settings))
    parsed = messages.withColumn("parsed", element)
    values = [f"parsed.{quoted_column(c.name)}" for c in columns]
    bad = (
        "CASE WHEN startswith(CAST(value AS string), '<!--') THEN 'not-xml: a comment does not end' "
        f"WHEN parsed.{BAD} IS NOT NULL THEN 'not-xml: the element cannot be parsed' END"
    )
    return replace(with_cells(parsed, [c.name for c in columns], values, bad), columns=columns)


def _columns(known: Mapping[str, str], schema: StructType | None) -> tuple[Column, ...]:
    if schema is None:
        return tuple(Column(n, t if _nested(t) else "string") for n, t in known.items())
    # a table's nested column may have members that these files lack
    return tuple(
        Column(f.name, known[f.name] if _holds(known.get(f.name), f.dataType) else sql_type(f.dataType))
        for f in schema.fields
    )


def _holds(known: str | None, other: DataType) -> bool:
    """Check whether a nested type has every member of another."""
    if known is None or not _nested(known):
        return False
    there = parsed_type(known)
    return _members(other) <= _members(there) and there.typeName() in ("array", other.typeName())


def _members(data_type: DataType) -> set[str]:
    """Return the names of a type's members, at any depth."""
    if isinstance(data_type, ArrayType):
        return _members(data_type.elementType)
    if not isinstance(data_type, StructType):
        return set()
    return {f.name for f in data_type.fields}.union(*(_members(f.dataType) for f in data_type.fields))


def _nested(sql_type: str) -> bool:
    return "<" in sql_type


def _options(settings: XmlSettings) -> dict[str, str]:
    return {"attributePrefix": settings.attribute_prefix, "columnNameOfCorruptRecord": BAD, "mode": "PERMISSIVE"}
