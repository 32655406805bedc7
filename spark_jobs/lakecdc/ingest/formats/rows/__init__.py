"""Formats of files with rows: each splits records into cells, which tasks then type.

The cells frame has the message's own columns (``envelope.MESSAGE``), ``arrival``, ``cells`` (a struct, one member per
column, text as a rule) and ``problem`` (why the record is unreadable, ``rule: reason``, or null).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakecdc.contract.sources.files import FilesSource
from lakecdc.ingest.formats.rows import delimited, elements
from lakecdc.ingest.formats.rows.cells import Cells, cells_of_json


def read_cells(
    messages: DataFrame, source: FilesSource, known: Mapping[str, str], schema: StructType | None = None
) -> Cells:
    """Return the cells of text records: lines of ``csv`` and ``text``, ``xml`` elements, quarantined ``parquet`` rows.

    :param messages: a message frame; for ``csv`` with a header each record has it.
    :param known: Spark SQL types of the known columns.
    :param schema: for ``xml``: the columns in the files; default: only the known ones.
    """
    known = {name: kind for name, kind in known.items() if not name.startswith("_lakecdc_")}
    if source.format == "parquet":
        return cells_of_json(messages, known)
    if source.format == "text":
        assert source.text
        return delimited.text_cells(messages, source.text)
    if source.format == "xml":
        assert source.xml
        return elements.cells(messages, source.xml, known, schema)
    return delimited.cells(messages, delimited.settings_of(source))
