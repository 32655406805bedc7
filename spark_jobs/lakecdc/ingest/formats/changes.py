"""From envelopes to the change frame: columns typed, keys found, moves of a key told, misfits set apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats import values
from lakecdc.ingest.formats.envelope import MESSAGE, NO_VARIANT
from lakecdc.ingest.formats.values import Field
from lakecdc.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.ingest.formats.envelope import Format, Reading

#: what a message that cannot be applied leaves behind
REJECTED = ("rule", "reason", *MESSAGE, "source_table", "order", "source_time", "row_key")
#: options of JSON that has values as they are; by default Spark cuts times to milliseconds
EXACT_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Typing:
    """How a table's envelopes become changes.

    :param fields: its columns.
    :param key: names of its key columns.
    :param marks: highest order key applied by ``topic/partition``; None if there are none to trust.
    :param source_column: column that takes the source table's name; None for none.
    :param encoded: for columns that schemas of the batch write in different ways: how, by the schema's text.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    read: Format
    reading: Reading
    marks: Mapping[str, str] | None = None
    source_column: str | None = None
    encoded: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)

    def value(self, image: str, field: Field) -> str:
        """SQL of a column's value in a row image."""
        if field.name == self.source_column:
            return "source_table"
        return self._by_schema(field, lambda one: values.value(image, one)) or values.value(image, field)

    def misfit(self, image: str, field: Field) -> str | None:
        """SQL that is true for a value that does not fit the column; None if every value does."""
        by_schema = self._by_schema(field, lambda one: values.misfit(image, one) or "false")
        return by_schema or values.misfit(image, field)

    def _by_schema(self, field: Field, sql: Callable[[Field], str]) -> str | None:
        known = self.encoded.get(field.name)
        if not known:
            return None
        cases = " ".join(f"WHEN {literal(text)} THEN {sql(one)}" for text, one in known.items())
        return f"CASE schema {cases} ELSE {sql(field)} END"


def decoded(envelopes: DataFrame, typing: Typing) -> DataFrame:
    """Type a table's row events.

    :param envelopes: its envelopes without tombstones and TRUNCATEs.
    :return: the change frame, each row with ``rejected``: null, or the message with rule and reason if it cannot be
        applied. One row per event, two where an update moves the key.
    """
    typed = envelopes.withColumnRenamed("key", "raw_key").select(
        *(c if c != "key" else "raw_key" for c in MESSAGE),
        *("op", "problem", "source_table", "order", "source_time"),
        _row(typing).alias("row"),
        _open(typing).alias("open"),
        _misfits(typing).alias("misfits"),
        _key("after", typing).alias("new_key"),
        _key("before", typing).alias("before_key"),
        _key("record_key", typing).alias("record_key"),
        F.when(F.col("old_key").isNotNull(), _key("old_key", typing)).alias("linked_key"),
    )
    is_delete = F.col("op") == "d"
    # a delete's `before` may be invented except for the key, and absent except for the record's key
    own = _first_known(F.when(is_delete, F.col("before_key")).otherwise(F.col("new_key")), F.col("record_key"), typing)
    was = F.when(F.col("op") == "u", _first_known(F.col("before_key"), F.col("new_key"), typing))
    keyed = typed.withColumn("key", own).withColumn("was", was)
    moved = F.when(F.col("was").isNotNull() & (F.col("was") != F.col("key")), F.col("was"))
    keyed = keyed.withColumn("old_key", F.when(~is_delete, F.coalesce("linked_key", moved)))
    keyed = keyed.withColumn("rejected", _rejected(typing)).withColumn("late", _late(typing))
    return _with_deletes_of_moved_keys(keyed, moved)


def _row(typing: Typing) -> Column:
    return F.struct(*[F.expr(typing.value("after", f)).alias(f.name) for f in typing.fields])


def _open(typing: Typing) -> Column:
    """Names of the columns whose value only stands for "unchanged"."""
    if not typing.read.placeholders:
        return F.lit(None).cast("array<string>")
    found = []
    for one in typing.fields:
        sql = values.is_placeholder("after", one, typing.reading.unavailable_value)
        if sql:
            found.append(F.when(F.expr(sql), F.lit(one.name)))
    if not found:
        return F.lit(None).cast("array<string>")
    # what has a function for an argument, as array_compact has, is interpreted with all that it works on
    return F.when(listed(found) != "", F.array_compact(F.array(*found)))


def listed(names: Sequence[Column]) -> Column:
    """The names that are not null, in one text; empty if there are none."""
    return F.concat_ws(", ", *names) if names else F.lit("")


def _misfits(typing: Typing) -> Column:
    """Names of the columns whose value does not fit their type."""
    found = []
    for one in (f for f in typing.fields if f.name != typing.source_column):
        sql = typing.misfit("after", one)
        if sql:
            unchanged = values.is_placeholder("after", one, typing.reading.unavailable_value)
            if unchanged and typing.read.placeholders:
                sql = f"({sql} AND NOT coalesce({unchanged}, false))"
            found.append(F.when(F.expr(sql), F.lit(f"{one.name} ({one.type})")))
    return listed(found)


def no_key() -> Column:
    """The key of a table that has none; Spark stores no struct without fields."""
    return F.struct(F.lit(None).cast("string").alias("none"))


def _key(image: str, typing: Typing) -> Column:
    if not typing.key:
        return no_key()
    fields = {f.name: f for f in typing.fields}
    return F.struct(*[F.expr(typing.value(image, fields[k])).alias(k) for k in typing.key])


def _first_known(first: Column, second: Column, typing: Typing) -> Column:
    """Key columns of one image, those that it lacks from another."""
    if not typing.key:
        return no_key()
    return F.struct(*[F.coalesce(first[k], second[k]).alias(k) for k in typing.key])


def _rejected(typing: Typing) -> Column:
    key = F.col("key")
    lacking = [F.when(key[k].isNull(), F.lit(k)) for k in typing.key]
    no_key = listed(lacking)
    row_is_new = F.col("op").isin("r", "c", "u")
    rule = (
        F.when(F.col("problem").isNotNull(), F.substring_index("problem", ": ", 1))
        .when(row_is_new & (F.col("misfits") != ""), F.lit("type"))
        .when(no_key != "", F.lit("no-key"))
    )
    reason = (
        F.when(F.col("problem").isNotNull(), F.expr("substr(problem, instr(problem, ': ') + 2)"))
        .when(
            row_is_new & (F.col("misfits") != ""),
            F.concat(F.lit("values do not fit their columns: "), F.col("misfits")),
        )
        .otherwise(F.concat(F.lit("no value for the key columns "), no_key, _of_another_case(typing.key)))
    )
    message = F.struct(
        rule.alias("rule"),
        reason.alias("reason"),
        *[F.col(c if c != "key" else "raw_key").alias(c) for c in REJECTED[2:-1]],
        F.when(F.lit(bool(typing.key)) & (no_key == ""), row_key("key", typing.key)).alias("row_key"),
    )
    return F.when(rule.isNotNull(), message)


def _of_another_case(key: Sequence[str]) -> Column:
    """What to add about names in a message that differ from those of key columns in case alone."""
    message = F.concat_ws(" ", F.col("raw_key").cast("string"), F.col("value").cast("string"))
    named = [F.regexp_extract(message, rf'"((?i:{re.escape(name)}))"\s*:', 1) for name in key]
    other = listed([F.when(~found.isin("", name), found) for found, name in zip(named, key, strict=True)])
    return F.when(other != "", F.concat(F.lit("; it has "), other, F.lit(", and case counts"))).otherwise("")


def row_key(column: str, names: Sequence[str]) -> Column:
    """The values of a key as text, whatever its columns are called; null if there is no key.

    :param column: name of a struct.
    """
    values = F.struct(*[F.col(column)[name].alias(f"k{i}") for i, name in enumerate(names)])
    return F.when(F.col(column).isNotNull(), exact_json(values))


def exact_json(column: Column | str) -> Column:
    """A struct as JSON with its values as they are; members that are null are left out."""
    return F.to_json(column, EXACT_JSON)


def _late(typing: Typing) -> Column:
    if typing.marks is None:
        return F.lit(None).cast("boolean")
    if not typing.marks:
        return F.lit(True)
    marks = F.create_map(*[F.lit(x) for pair in typing.marks.items() for x in pair])
    mark = F.try_element_at(marks, F.concat_ws("/", "topic", "partition"))
    return F.coalesce(F.col("order") <= mark, F.lit(True))


def _with_deletes_of_moved_keys(keyed: DataFrame, moved: Column) -> DataFrame:
    """An update that changes the key also deletes the row under the old one."""
    names = ("op", "key", "row", "open", "old_key", "order", "source_time", "late", "rejected")
    row = F.when(F.col("op") != "d", F.col("row"))
    own = F.struct(
        "op", "key", row.alias("row"), "open", F.when(F.col("old_key").isNotNull(), F.col("old_key")).alias("old_key")
    )
    kinds = keyed.select(own.alias("e")).schema["e"].dataType
    nothing = {n: F.lit(None).cast(kinds[n].dataType).alias(n) for n in ("row", "open", "old_key")}  # type: ignore[index]
    gone = F.struct(F.lit("d").alias("op"), moved.alias("key"), *nothing.values())
    pair = F.when(moved.isNotNull() & F.col("rejected").isNull(), F.array(gone, own)).otherwise(F.array(own))
    exploded = keyed.select(F.explode(pair).alias("e"), "order", "source_time", "late", "rejected")
    return exploded.select("e.*", "order", "source_time", "late", "rejected").select(*names)


def only_deletes(tombstones: DataFrame, typing: Typing) -> DataFrame:
    """Tombstones whose key has no other event, as deletes in the same shape as :func:`decoded`.

    :param tombstones: their envelopes, with the order key that places them.
    """
    as_deletes = tombstones.withColumn("op", F.lit("d")).withColumn("before", F.expr(NO_VARIANT))
    return decoded(as_deletes, typing)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of several change frames."""
    return reduce(lambda a, b: a.unionByName(b), frames)
