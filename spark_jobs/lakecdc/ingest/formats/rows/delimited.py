"""Formats ``csv`` and ``text``.

A record of ``csv`` is a line, or several with a quoted line break, and has its header. A record of ``text`` is a line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.formats import CsvSettings, TextSettings
from lakecdc.ingest.formats.rows.cells import Cells, with_cells
from lakecdc.sql import literal

#: name of the message header that holds the header of the file
HEADER = "csv-header"
# a character that does not occur in logs, so one match returns all groups
_MARK = "\u0001"
_LINE = "CAST(value AS string)"
_OWN_HEADER = "CAST(filter(headers, h -> h.key = 'csv-header')[0].value AS string)"


def settings_of(source: FilesSource) -> CsvSettings:
    return source.csv or CsvSettings()


def record_pattern(settings: CsvSettings) -> str:
    """Return the regular expression (Java) of a record whose quoted fields may hold line breaks."""
    if not settings.quote:
        return r"[^\r\n]++"
    quote, escape = (re.escape(sign) for sign in (settings.quote, settings.escape))
    inside = f"[^{quote}]*+"
    if settings.escape not in ("", settings.quote):
        inside = rf"(?:[^{quote}{escape}]++|{escape}(?s:.))*+"
    return rf"(?:[^{quote}\r\n]++|{quote}{inside}{quote}?)++"


def with_header(messages: DataFrame, header: str) -> DataFrame:
    """Return records of files with one header, without it."""
    own = F.array(F.struct(F.lit(HEADER).alias("key"), F.lit(header).cast("binary").alias("value")))
    return messages.where(F.expr(_LINE) != header).withColumn("headers", own)


def cells(messages: DataFrame, settings: CsvSettings) -> Cells:
    """See the package; records of files with different headers may be mixed.

    :raises InputError: a header has duplicate or missing column names.
    """
    if not settings.header:
        return _of_names(messages, settings, settings.names, settings.names)
    headers = [row[0] for row in messages.selectExpr(_OWN_HEADER).distinct().collect()]
    by_header = {header: _names(header, settings) for header in sorted(filter(None, headers))}
    names = list(dict.fromkeys(name for own in by_header.values() for name in own))
    frames = [
        _of_names(messages.where(F.expr(_OWN_HEADER) == header), settings, own, names)
        for header, own in by_header.items()
    ]
    if not frames:
        return _of_names(messages.limit(0), settings, (), ())
    return Cells(reduce(lambda a, b: a.unionAll(b), (one.frame for one in frames)), frames[0].columns)


def _of_names(messages: DataFrame, settings: CsvSettings, own: Sequence[str], names: Sequence[str]) -> Cells:
    """Return the cells of records with one header, whose columns are a part of all names."""
    if not own:
        return with_cells(messages, (), (), "CAST(NULL AS string)")
    schema = ", ".join([*(f"c{i} string" for i in range(len(own))), "bad string"])
    options = {"sep": settings.delimiter, "quote": settings.quote or "\u0000", "escape": settings.escape or "\u0000"}
    options |= {"nullValue": settings.null_value, "columnNameOfCorruptRecord": "bad", "mode": "PERMISSIVE"}
    options |= {"maxCharsPerColumn": "-1", "maxColumns": str(max(len(own) * 2, 20480))}
    parsed = messages.withColumn("parsed", F.from_csv(F.expr(_LINE), schema, options))
    values = [f"parsed.c{list(own).index(n)}" if n in own else "CAST(NULL AS string)" for n in names]
    return with_cells(parsed, names, [f"nullif({value}, '')" for value in values], _problem(settings, len(own)))


def _problem(settings: CsvSettings, columns: int) -> str:
    fields = f"WHEN parsed.bad IS NOT NULL THEN 'fields: the record does not have the {columns} fields of its header'"
    if not settings.quote:
        return f"CASE {fields} END"
    quote, escape = literal(settings.quote), literal(settings.escape + settings.quote)
    bare = f"replace({_LINE}, {escape}, '')" if settings.escape else _LINE
    odd = f"(length({bare}) - length(replace({bare}, {quote}, ''))) % 2 = 1"
    return f"CASE WHEN {odd} THEN 'quotes: a quoted field does not end' {fields} END"


def _names(header: str, settings: CsvSettings) -> list[str]:
    text = [header.removeprefix("\ufeff")]
    if settings.quote:
        reader = csv.reader(text, delimiter=settings.delimiter, quotechar=settings.quote)
    else:
        reader = csv.reader(text, delimiter=settings.delimiter, quoting=csv.QUOTE_NONE)
    names = [name.strip() for name in next(reader)]
    if len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"The header {header!r} has duplicate or missing column names.",
            hint='Correct the files, or set "header" to false and name the columns in "names".',
        )
    return names


def text_cells(messages: DataFrame, settings: TextSettings) -> Cells:
    """Return the cells of lines split by a regular expression; see the package."""
    groups = settings.groups()
    replacement = "".join(f"{_MARK}${number}" for number in groups.values())
    marked = F.regexp_replace(F.expr(_LINE), F.lit(f"^(?:{settings.unnamed()})$"), F.lit(replacement))
    parsed = messages.withColumn("parsed", F.split(marked, _MARK))
    values = [
        f"nullif(nullif(try_element_at(parsed, {i + 2}), ''), {literal(settings.null_value)})"
        for i in range(len(groups))
    ]
    problem = f"CASE WHEN size(parsed) != {len(groups) + 1} THEN 'no-match: the line does not match the pattern' END"
    return with_cells(parsed, tuple(groups), values, problem)
