"""The envelope frame: a message frame after its format has read the envelopes, before any column is typed.

Beside the message's own columns (``MESSAGE``):

=================  ================================================================================
``op``             ``r``, ``c``, ``u``, ``d``, ``t`` (TRUNCATE), ``x`` (tombstone); null for a message that is
                   knowingly no row event (heartbeat, transaction, schema change)
``problem``        why the message cannot be read, ``rule: reason``; null if it can
``source_table``   ``schema.table`` or ``database.table``; the topic if the format does not tell it; or null
``before``         variant of the row before, or of its key or its changed columns only; or null
``after``          variant of the row after; null for a delete
``record_key``     variant of the message's key; or null
``old_key``        variant of the key the row had before, where the format links the two; or null
``schema``         text of the row's schema in the format's own notation; or null
``key_names``      names of the columns of the source's primary key, where the message itself tells them; or null
``order``          the order key
``source_time``    when the source committed, or null
=================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.messages import json, once
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import LAST_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.formats.avro_registry import Registry

#: columns of the message that stay with its envelope
MESSAGE = ("topic", "partition", "offset", "place", "key", "value", "headers")
_OF_A_TABLE = ("r", "c", "u", "d", "t")
NO_VARIANT = "CAST(NULL AS variant)"
NOT_JSON = "'not-json: the value is no JSON'"
#: a message in JSON, parsed
PARSED = (
    "*",
    f"{once(json('CAST(value AS string)'))} AS v",
    f"{once(json('CAST(key AS string)'))} AS k",
)


@dataclass(frozen=True)
class Reading:
    """What a source knows that a format needs.

    :param epoch: number of the source's identity, 0 to 65535.
    :param unavailable_value: Debezium's ``unavailable.value.placeholder``.
    :param settings: further settings of the format.
    :param registry: where the messages' schemas are; None for formats that need none.
    :param routed: the source has chosen the messages' topics for the target.
    :param only_added: rows of a format that tells no kind of change are added, none is the newer state of another.
    """

    epoch: int
    unavailable_value: str = "__debezium_unavailable_value"
    settings: Mapping[str, str] = field(default_factory=dict)
    registry: Registry | None = None
    routed: bool = False
    only_added: bool = False


@dataclass(frozen=True)
class InJson:
    """Messages whose records stand beside them as the JSON that Debezium would have written.

    :param messages: with texts ``payload``, ``key_text`` and ``moved_text``; null where a record cannot be read.
    :param told: columns of the schema that all payloads have.
    """

    messages: DataFrame
    told: tuple[Field, ...]


@dataclass(frozen=True)
class Format:
    """A format of change events.

    :param envelopes: message frame to envelope frame.
    :param fields: columns out of the text in ``schema``, as far as it tells them.
    :param placeholders: whether values may stand for "unchanged".
    :param tombstones: whether a null value deletes its key.
    :param row_keys: the messages' keys are the keys of their rows.
    :param in_json: message frame to the same in JSON, for the native engine; None where that cannot be.
    :param doubts: columns to which the text in ``schema`` gives a type that the source cannot have.
    """

    envelopes: Callable[[DataFrame, Reading], DataFrame]
    fields: Callable[[str], tuple[Field, ...]] = lambda schema: ()
    placeholders: bool = False
    tombstones: bool = False
    row_keys: bool = False
    in_json: Callable[[DataFrame, Reading], InJson | None] | None = None
    doubts: Callable[[str], Sequence[str]] = lambda schema: ()

    def columns_of(self, schema: str) -> tuple[Field, ...]:
        """The columns that a text in ``schema`` tells; none if it is not the format's notation."""
        try:
            return self.fields(schema)
        except NO_SCHEMA:
            return ()

    def doubted_of(self, schema: str, fixed: Collection[str]) -> str | None:
        """Why messages with a text in ``schema`` are no more to be believed than that; None if they are.

        :param fixed: columns whose types do not depend on it.
        """
        try:
            found = [name for name in self.doubts(schema) if name not in fixed]
        except NO_SCHEMA:
            return None
        return f"unknown-type: the source has no such type as the message tells of {found[0]}" if found else None


def envelope(
    parsed: DataFrame,
    *,
    op: str,
    problem: str,
    order: str,
    time_us: str,
    source_table: str = "CAST(NULL AS string)",
    before: str = NO_VARIANT,
    after: str = NO_VARIANT,
    record_key: str = "k",
    old_key: str = NO_VARIANT,
    schema: str = "CAST(NULL AS string)",
    key_names: str = "CAST(NULL AS array<string>)",
) -> DataFrame:
    """An envelope frame from SQL expressions over a parsed message frame; see the module for their meaning.

    :param time_us: microseconds since 1970, or null.
    """
    problem = f"coalesce({problem}, {_nameless(before, after)})"
    columns = {
        "op": op,
        "problem": problem,
        # where the format does not tell the table, the topic does
        "source_table": f"coalesce(nullif({source_table}, ''), "
        f"CASE WHEN ({op}) IN {_OF_A_TABLE} OR ({problem}) IS NOT NULL THEN topic END)",
        "before": _object(before),
        "after": _object(after),
        "record_key": _object(record_key),
        "old_key": old_key,
        "schema": schema,
        "key_names": key_names,
        "order": order,
        "source_time": f"timestamp_micros({time_us})",
    }
    named = parsed.selectExpr(*MESSAGE, *[f"{sql} AS `{name}`" for name, sql in columns.items()])
    # a moment that Python cannot tell is none
    told = f"CASE WHEN unix_micros(source_time) BETWEEN -62135596800000000L AND {LAST_TIME}999L THEN source_time END"
    named = named.withColumn("source_time", F.expr(told))
    # what cannot be read is no row event
    return (
        named.selectExpr("*", "CASE WHEN problem IS NULL THEN op END AS known_op")
        .drop("op")
        .withColumnRenamed("known_op", "op")
    )


def _nameless(*images: str) -> str:
    """SQL of the problem of row images with a member that no column can be called like; null if there is none."""
    text = "CAST(value AS string)"
    # it takes a message apart once more, for which few have a reason
    may_be = f"(contains({text}, '\\\\u0000') OR contains({text}, '\"\"'))"
    names = [f"map_keys(try_variant_get({i}, '$', 'map<string,variant>'))" for i in images if i != NO_VARIANT]
    found = [f"exists({n}, name -> name = '' OR contains(name, chr(0)))" for n in names]
    if not found:
        return "CAST(NULL AS string)"
    reason = "'bad-name: a member has no name, or one with a null character'"
    return f"CASE WHEN {may_be} AND (coalesce({', false) OR coalesce('.join(found)}, false)) THEN {reason} END"


def _object(sql: str) -> str:
    """A variant, null where the JSON says null."""
    return sql if sql == NO_VARIANT else f"CASE WHEN NOT is_variant_null({sql}) THEN {sql} END"


def text(path: str, of: str = "v") -> str:
    """SQL of a text at a JSON path, null if there is none."""
    return f"try_variant_get({of}, '$.{path}', 'string')"


def number(path: str, of: str = "v") -> str:
    """SQL of a long at a JSON path, null if there is none."""
    return f"try_variant_get({of}, '$.{path}', 'bigint')"


def member(path: str, of: str = "v") -> str:
    """SQL of a variant at a JSON path, null if there is none."""
    return f"try_variant_get({of}, '$.{path}', 'variant')"


def names(path: str, of: str = "v") -> str:
    """SQL of a list of names at a JSON path, null if there is none."""
    return f"try_variant_get({of}, '$.{path}', 'array<string>')"


def times(sql: str, factor: int, more: str = "0L") -> str:
    """SQL of a number some times, and another one on top; null beyond 63 bits."""
    return f"try_add(try_multiply({sql}, {factor}L), {more})"


def commit_lsn(sequence: str) -> str:
    """SQL of the position of the last commit in Postgres' ``sequence``, ``["24023119","24023128"]``."""
    return f"try_cast(nullif(regexp_extract({sequence}, '^\\\\[\"(\\\\d+)\"', 1), '') AS bigint)"


def hexadecimal(sql: str) -> str:
    """SQL of the number that hexadecimal digits mean, null from 63 bits on."""
    return f"try_cast(conv({sql}, 16, 10) AS bigint)"


def digits(sql: str) -> str:
    """SQL of the number at the end of a text such as ``binlog.000012``."""
    return f"try_cast(nullif(regexp_extract({sql}, '(\\\\d+)$', 1), '') AS bigint)"
