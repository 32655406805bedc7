"""Format ``xml``: a record is an element; children and attributes are its columns, nested ones stay nested.

Records are cut out of the text before they are parsed, so that a broken one spoils no other and is kept as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakecdc.iceberg.definition import quoted_column
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.ingest.formats.rows.cells import NO_TEXT, Cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.sources.formats import XmlSettings

_BAD = "_lakecdc_bad"


def record_pattern(row_tag: str) -> str:
    """Regular expression (Java) of one record, or of a comment; a record that does not end takes the rest."""
    tag = re.escape(row_tag)
    return rf"(?s)<!--.*?-->|<{tag}(?=[\s/>])(?:[^>]*/>|[^>]*+>.*?(?:</{tag}\s*>|\z))"


def schema_of(spark: SparkSession, files: list[str], settings: XmlSettings) -> str:
    """Columns of files as DDL, all leaves text."""
    reader = spark.read.format("xml").options(**_options(settings), rowTag=settings.row_tag, inferSchema="false")
    fields = [f for f in reader.load(files).schema.fields if f.name != _BAD]
    return ", ".join(f"{quoted_column(f.name)} {f.dataType.simpleString()}" for f in fields)


def cells(messages: DataFrame, settings: XmlSettings, known: Mapping[str, str], schema: str | None) -> Cells:
    """See the package.

    :param schema: columns of the files; default: the known ones.
    """
    columns = _columns(known, schema)
    ddl = ", ".join([*(f"{quoted_column(c.name)} {c.type}" for c in columns), f"{_BAD} string"])
    parsed = messages.withColumn("parsed", F.from_xml(F.expr("CAST(value AS string)"), ddl, _options(settings)))
    members = ", ".join(f"parsed.{quoted_column(c.name)} AS {quoted_column(c.name)}" for c in columns)
    bad = f"CASE WHEN parsed.{_BAD} IS NOT NULL THEN 'not-xml: the element cannot be parsed' END"
    problem = f"coalesce({NO_TEXT}, {bad}) AS problem"
    return Cells(parsed.selectExpr(*MESSAGE, "arrival", f"struct({members}) AS cells", problem), columns)


def _columns(known: Mapping[str, str], schema: str | None) -> tuple[Column, ...]:
    if schema is None:
        return tuple(Column(n, t if _nested(t) else "string") for n, t in known.items())
    found = {f.name: f.dataType.simpleString() for f in _fields(schema)}
    # a table's nested column may have members that these files happen not to show
    return tuple(Column(n, known[n] if n in known and _holds(known[n], t) else t) for n, t in found.items())


def _fields(schema: str) -> list[StructField]:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found.fields


def _holds(known: str, found: str) -> bool:
    """Whether a nested type has every member of another."""
    if not _nested(known):
        return False
    members = set(re.findall(r"[\w-]+(?=:)", found))
    return members <= set(re.findall(r"[\w-]+(?=:)", known)) and known.split("<")[0] in ("array", found.split("<")[0])


def _nested(sql_type: str) -> bool:
    return "<" in sql_type


def _options(settings: XmlSettings) -> dict[str, str]:
    return {"attributePrefix": settings.attribute_prefix, "columnNameOfCorruptRecord": _BAD, "mode": "PERMISSIVE"}
