"""Format ``parquet``: a record is a row with types of its own; one that was kept aside is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.rows.cells import Cells, with_cells
from lakecdc.ingest.formats.rows.text_sql import member

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cells_of_json(messages: DataFrame, known: Mapping[str, str]) -> Cells:
    """Cells of rows that were kept aside.

    :param known: the table's columns.
    """
    parsed = messages.selectExpr("*", "try_parse_json(CAST(value AS string)) AS parsed")
    texts = [member("parsed", name, "string") for name in known]
    problem = "CASE WHEN parsed IS NULL THEN 'not-json: the row is no JSON' END"
    return with_cells(parsed, tuple(known), texts, problem)
