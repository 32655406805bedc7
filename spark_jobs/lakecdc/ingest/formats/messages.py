"""The message frame, which file and queue sources pass to a format.

===============  ==================================================================================
``topic``        topic, or null for files
``partition``    partition of the topic, 0 for files
``offset``       offset in the partition; null for files that are not a dump of a topic
``timestamp``    time of the record, null for files
``key``          raw key, binary, or null
``value``        raw value, binary; null is a tombstone
``headers``      array of ``struct<key string, value binary>``, or null
``arrival``      long that increases in the order of arrival; the last tie-breaker of the order key
``place``        text that identifies the message at its source, such as ``shop.orders/3@1234``
===============  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from lakecdc.ingest.envelopes.json_values import HALF
from lakecdc.sql import literal

#: creates the message frame
Messages = Callable[[], "DataFrame"]

HEADERS = "array<struct<key:string,value:binary>>"
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    f"headers {HEADERS}, arrival bigint, place string"
)


def as_they_are(messages: DataFrame, *_more: str) -> DataFrame:
    """Return a message frame unchanged, given further column names."""
    return messages


def place_sql(source: str) -> str:
    """Return SQL of the place of a message from its value and the column with the name of its file or table."""
    return f"concat({source}, '#', hex(xxhash64(value))) AS place"


def from_values(lines: DataFrame, *more: str) -> DataFrame:
    """Return messages from lines of one event each, with further columns.

    :param lines: columns ``value`` (text), ``arrival`` (long) and ``place`` (text).
    """
    return lines.selectExpr(
        "CAST(NULL AS string) AS topic",
        "0 AS partition",
        "CAST(NULL AS bigint) AS offset",
        "CAST(NULL AS timestamp) AS timestamp",
        "CAST(NULL AS binary) AS key",
        "CAST(value AS binary) AS value",
        f"CAST(NULL AS {HEADERS}) AS headers",
        "arrival",
        "place",
        *more,
    )


def from_dumped_records(lines: DataFrame) -> DataFrame:
    """Return messages from dumped Kafka records: ``topic, partition, offset, timestamp, key, value, headers``.

    Key and value may be JSON or text with JSON; a line that is not a record stays whole, to be quarantined.
    """
    parsed = lines.selectExpr("value AS line", "arrival", "place", f"{once(json('value'))} AS v")
    headers = (
        "transform(try_variant_get(v, '$.headers', 'array<array<string>>'), "
        "h -> named_struct('key', h[0], 'value', CAST(h[1] AS binary)))"
    )
    raw = "CAST(CASE WHEN is_variant_null({0}) THEN NULL ELSE CAST({0} AS string) END AS binary)"
    return parsed.selectExpr(
        "try_variant_get(v, '$.topic', 'string') AS topic",
        "coalesce(try_variant_get(v, '$.partition', 'int'), 0) AS partition",
        "try_variant_get(v, '$.offset', 'bigint') AS offset",
        "timestamp_millis(try_variant_get(v, '$.timestamp', 'bigint')) AS timestamp",
        f"{raw.format(_member('key'))} AS key",
        f"CASE WHEN {_member('value')} IS NULL THEN CAST(line AS binary) "
        f"ELSE {raw.format(_member('value'))} END AS value",
        f"{headers} AS headers",
        "coalesce(try_variant_get(v, '$.offset', 'bigint'), arrival) AS arrival",
        "place",
    )


def _member(name: str) -> str:
    return f"try_variant_get(v, '$.{name}', 'variant')"


def json(text: str) -> str:
    """Return SQL of the variant of a text in JSON, UTF-8; null for any other text.

    Spark parses the start of a text, ignores the rest, such as a second object in a line, and replaces bytes that are
    not UTF-8. Half of a surrogate pair is not a character and becomes ``?``; in a member's name it would make an
    unreadable variant.
    """
    may_be = f"(contains({text}, '\\\\ud') OR contains({text}, '\\\\uD'))"
    whole = f"CASE WHEN {may_be} THEN regexp_replace({text}, {literal(HALF)}, '$1?') ELSE {text} END"
    is_one = f"is_valid_utf8({text}) AND json_array_length(concat('[', {text}, ']')) = 1"
    return f"CASE WHEN {is_one} THEN try_parse_json({whole}) END"


def once(sql: str) -> str:
    """Return SQL that is evaluated once per row, regardless of how many expressions use it.

    Spark pushes filters below projections and repeats the expressions they use there, such as the parsing of the whole
    message, unless these are nondeterministic. (It optimizes ``rand() >= 0`` away as always true.)
    """
    return f"CASE WHEN monotonically_increasing_id() >= 0 THEN {sql} END"
