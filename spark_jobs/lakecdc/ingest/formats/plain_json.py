"""JSON objects that are rows, flat or nested: each is the state of its key; a null value deletes it.

In a table that is only appended to, each is a row of its own.

Order: ``order_by`` of the source names a member that rises with every change (a version, a time), else arrival decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.formats import values
from lakecdc.ingest.formats.envelope import NOT_JSON, PARSED, Format, Reading, envelope
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    name = reading.settings.get("order_by")
    place, lacks = _placed(name) if name else ("0", "")
    millis = "coalesce(unix_millis(timestamp), 0)"
    op = "c" if reading.only_added else "u"
    return envelope(
        messages.selectExpr(*PARSED),
        op=f"CASE WHEN value IS NULL OR is_variant_null(v) THEN 'x' ELSE '{op}' END",
        problem=f"""CASE WHEN value IS NULL OR is_variant_null(v) THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN NOT schema_of_variant(v) LIKE 'OBJECT%' THEN 'unknown-message: the value is no JSON object'
          {lacks} END""",
        after="v",
        order=order_sql(str(reading.epoch), place, "0", "8", millis, "arrival"),
        time_us="unix_micros(timestamp)",
    )


def _placed(name: str) -> tuple[str, str]:
    """SQL of the position that a member tells, and the case of a message without it."""
    instant = f"unix_micros(try_cast({values.member('v', name, 'string')} AS timestamp))"
    position = f"coalesce({values.member('v', name, 'bigint')}, {instant})"
    said = name.replace("'", "")
    lacks = f"WHEN {position} IS NULL THEN 'no-order: no number or time in {said}'"
    # with the sign turned, negative numbers sort below positive ones
    return f"(coalesce({position}, 0L) ^ shiftleft(1L, 63))", lacks


FORMAT = Format(envelopes, tombstones=True)
