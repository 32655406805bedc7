"""Format ``text``: a record is a line that a regular expression takes apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats.rows.cells import Cells, with_cells
from lakecdc.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.sources.formats import TextSettings

# no log holds it, and one match then serves all groups
_MARK = "\u0001"


def cells(messages: DataFrame, settings: TextSettings) -> Cells:
    """See the package."""
    groups = settings.groups()
    replacement = "".join(f"{_MARK}${number}" for number in groups.values())
    marked = F.regexp_replace(F.expr("CAST(value AS string)"), F.lit(f"^(?:{settings.unnamed()})$"), F.lit(replacement))
    parsed = messages.withColumn("parsed", F.split(marked, _MARK))
    values = [
        f"nullif(nullif(try_element_at(parsed, {i + 2}), ''), {literal(settings.null_value)})"
        for i in range(len(groups))
    ]
    problem = f"CASE WHEN size(parsed) != {len(groups) + 1} THEN 'no-match: the line does not match the pattern' END"
    return with_cells(parsed, tuple(groups), values, problem)
