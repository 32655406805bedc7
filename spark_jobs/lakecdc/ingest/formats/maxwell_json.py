"""Maxwell's messages.

Order: the binlog position where it is emitted (``output_binlog_position``), else time, transaction and place in it.
The last row of a transaction says ``commit`` and has no ``xoffset``. A row of a bootstrap does not tell when it was
read: every change is newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.formats.envelope import (
    NOT_JSON,
    PARSED,
    Format,
    Reading,
    envelope,
    member,
    names,
    number,
    text,
    times,
)
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAST_OF_TRANSACTION = (1 << 20) - 1
_TYPE = text("type")
_OPS = f"""CASE {_TYPE} WHEN 'insert' THEN 'c' WHEN 'update' THEN 'u' WHEN 'delete' THEN 'd'
  WHEN 'bootstrap-insert' THEN 'r' END"""
NO_ROW_EVENTS = (
    *("bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop"),
    *("database-create", "database-alter", "database-drop", "heartbeat"),
)
# binlog.000012:4567
_FILE = f"try_cast(nullif(regexp_extract({text('position')}, '(\\\\d+):\\\\d+$', 1), '') AS bigint)"
_PLACE = f"try_cast(nullif(regexp_extract({text('position')}, ':(\\\\d+)$', 1), '') AS bigint)"


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    parsed = messages.selectExpr(*PARSED)
    logged = f"coalesce({times(_FILE, 1 << 32, _PLACE)}, {number('ts')}, 0)"
    position = f"CASE WHEN {_TYPE} = 'bootstrap-insert' THEN 0 ELSE {logged} END"
    nth = f"coalesce({number('xoffset')}, {LAST_OF_TRANSACTION})"
    ordinal = f"coalesce({times(number('xid'), LAST_OF_TRANSACTION + 1, nth)}, {nth})"
    rank = f"CASE WHEN {_TYPE} = 'bootstrap-insert' THEN 0 ELSE 8 END"
    return envelope(
        parsed,
        op=_OPS,
        problem=f"""CASE WHEN value IS NULL THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN {_OPS} IS NULL AND NOT coalesce({_TYPE} IN {NO_ROW_EVENTS}, false)
          THEN 'unknown-message: its type is none that Maxwell knows' END""",
        source_table=f"concat_ws('.', {text('database')}, {text('table')})",
        before=f"CASE {_TYPE} WHEN 'delete' THEN {member('data')} WHEN 'update' THEN {member('old')} END",
        after=f"CASE WHEN {_TYPE} != 'delete' THEN {member('data')} END",
        key_names=names("primary_key_columns"),
        order=order_sql(
            str(reading.epoch), position, ordinal, rank, f"coalesce({times(number('ts'), 1000)}, 0)", "arrival"
        ),
        time_us=times(number("ts"), 1_000_000),
    )


FORMAT = Format(envelopes)
