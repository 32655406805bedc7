"""AWS DMS' messages to Kafka or Kinesis.

Order: the time of the commit or of the change, then arrival. DMS keeps the order of a transaction in a partition, and
of a key where ``partition-key-type`` is ``primary-key``. A row of a full load tells when its message was made, which is
after it was read; changes that were committed in between are sent later, with an earlier time. So every change is newer
than any loaded row.

The row before an update stands in the member ``before-image`` (``BeforeImageSettings``) or in columns ``BI_…`` beside
the others (transformation ``add-before-image-columns``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.formats.envelope import NOT_JSON, PARSED, Format, Reading, envelope
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _metadata(name: str, kind: str = "string") -> str:
    return f"try_variant_get(v, '$.metadata[\"{name}\"]', '{kind}')"


_OPERATION = _metadata("operation")
_OPS = f"""CASE {_OPERATION} WHEN 'load' THEN 'r' WHEN 'insert' THEN 'c' WHEN 'update' THEN 'u'
  WHEN 'delete' THEN 'd' END"""
_TIME = f"unix_micros(try_cast(coalesce({_metadata('commit-timestamp')}, {_metadata('timestamp')}) AS timestamp))"
_CONTROL = f"({_metadata('record-type')} = 'control' AND {_OPERATION} != 'truncate-table')"
OLD_PREFIX = "BI_"
_IMAGE = "try_variant_get(v, '$[\"before-image\"]', 'variant')"


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    parsed = messages.selectExpr(*PARSED).selectExpr(
        "*", "CAST(try_variant_get(v, '$.data', 'variant') AS map<string, variant>) AS row"
    )
    # a column may be called so by itself
    bare = f"substr(name, {len(OLD_PREFIX) + 1})"
    is_old = f"(startswith(name, '{OLD_PREFIX}') AND map_contains_key(row, {bare}))"
    now = f"map_filter(row, (name, value) -> NOT {is_old})"
    old = f"transform_keys(map_filter(row, (name, value) -> {is_old}), (name, value) -> {bare})"
    op = f"CASE WHEN {_OPERATION} = 'truncate-table' THEN 't' WHEN NOT coalesce({_CONTROL}, false) THEN {_OPS} END"
    return envelope(
        parsed,
        op=op,
        problem=f"""CASE WHEN value IS NULL THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN {op} IS NULL AND NOT coalesce({_CONTROL}, false)
          THEN 'unknown-message: its operation is none that DMS knows' END""",
        source_table=f"concat_ws('.', {_metadata('schema-name')}, {_metadata('table-name')})",
        before=f"CASE {_OPERATION} WHEN 'delete' THEN to_variant_object({now}) "
        f"WHEN 'update' THEN coalesce({_IMAGE}, to_variant_object({old})) END",
        after=f"CASE WHEN {_OPERATION} != 'delete' THEN to_variant_object({now}) END",
        order=order_sql(
            str(reading.epoch),
            f"CASE WHEN {_OPERATION} = 'load' THEN 0 ELSE coalesce({_TIME}, 0) END",
            "0",
            f"CASE WHEN {_OPERATION} = 'load' THEN 0 ELSE 8 END",
            f"coalesce({_TIME}, 0) DIV 1000",
            "arrival",
        ),
        time_us=_TIME,
    )


FORMAT = Format(envelopes)
