"""Oracle GoldenGate's JSON: ``op_type`` I, U, D, T, ordered by the trail position ``pos``.

``op_ts`` may go backwards while ``pos`` rises, so it never decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.formats.envelope import NOT_JSON, PARSED, Format, Reading, digits, envelope, member, names, text
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPS = f"CASE upper({text('op_type')}) WHEN 'I' THEN 'c' WHEN 'U' THEN 'u' WHEN 'D' THEN 'd' WHEN 'T' THEN 't' END"
_TIME = f"unix_micros(try_cast({text('op_ts')} AS timestamp))"


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    position = f"coalesce({digits(text('pos'))}, 0)"
    return envelope(
        messages.selectExpr(*PARSED),
        op=_OPS,
        problem=f"""CASE WHEN value IS NULL THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN {_OPS} IS NULL THEN 'unknown-message: its op_type is none of I, U, D, T' END""",
        source_table=text("table"),
        before=member("before"),
        after=f"CASE WHEN {_OPS} != 'd' THEN {member('after')} END",
        key_names=names("primary_keys"),
        order=order_sql(str(reading.epoch), position, "0", "8", f"coalesce({_TIME}, 0) DIV 1000", "arrival"),
        time_us=_TIME,
    )


FORMAT = Format(envelopes)
