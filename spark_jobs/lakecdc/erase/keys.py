"""Read the keys to erase from the tables and files named in the options, and list the tables that may contain them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import permutations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.expiring import EraseRowsOptions
from lakecdc.contract.target import OLD_KEY_COLUMN
from lakecdc.erase.cursors import cursor_may_be_key
from lakecdc.erase.mentions import Mentions, rows_with_mentions
from lakecdc.erase.rewrite import JOB
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest.api import erased_key_hash, key_in_field_order
from lakecdc.metadata import names
from lakecdc.metadata.floor import unfinished_erasure
from lakecdc.sql import exact_json, quoted_column

_READERS = {"parquet": {}, "csv": {"header": "true"}, "json": {}}
# types that files store as readers show them
_PLAIN = ("tinyint", "smallint", "int", "bigint", "string", "date", "boolean")
_MATCHED = "_lakecdc_held"


@dataclass(frozen=True)
class Keys:
    """Distinct keys of one table, columns by field id; the digest of their hashes identifies them in a certificate."""

    frame: DataFrame
    columns: tuple[str, ...]
    count: int
    digest: str


def read_keys(table: IcebergTable, options: EraseRowsOptions, history: IcebergTable | None) -> Keys:
    """Read the keys that the options name.

    :raises SpecError: no option names the keys, or the condition uses a key column.
    :raises InputError: the table has no key, the named table or files lack a key column or have a null key, or an
        unfinished erasure may have removed the rows that meet the condition.
    :raises UnsupportedError: files store the key's type in another form than readers show it.
    """
    columns = key_in_field_order(table, table.identifier_columns)
    if not columns:
        raise InputError(
            "It has no key.", table=table.name, hint="Set its identifier fields: ALTER TABLE … SET IDENTIFIER FIELDS …."
        )
    types = spark_types(table)
    for column in columns:
        if types[column] not in _PLAIN and not types[column].startswith("decimal"):
            raise UnsupportedError(
                f"Its key column {column!r} has the unsupported type {types[column]}.", table=table.name
            )
    options.refuse_key_in_condition(columns, table.name)
    listed = _named(table, options, history, columns)
    if missing := [column for column in columns if column not in listed.columns]:
        raise InputError(
            f"The list of keys has no column {missing[0]!r}.",
            table=table.name,
            hint=f"Give it the columns {', '.join(columns)}, named as in the table.",
        )
    # the error of a cast shows the value
    frame = listed.select(*[F.col(quoted_column(c)).try_cast(types[c]).alias(c) for c in columns]).distinct()
    frame = frame.localCheckpoint()
    if frame.where(" OR ".join(f"{quoted_column(c)} IS NULL" for c in columns)).take(1):
        raise InputError(
            "The list of keys has a row without a value of the key's type.",
            table=table.name,
            hint="Correct the values; nothing was changed.",
        )
    hashes = sorted(row[0] for row in frame.select(erased_key_hash(table.uuid, key_text(columns))).collect())
    keys = Keys(frame, columns, len(hashes), hashlib.sha256("".join(hashes).encode()).hexdigest())
    if options.condition:
        _refuse_half_erased(table, history, keys)
    return keys


def key_text(columns: Sequence[str]) -> Column:
    """Return a row's key as text, as in the quarantine's ``row_key`` for key columns in this order."""
    return exact_json(F.struct(*[F.col(quoted_column(c)).alias(f"k{i}") for i, c in enumerate(columns)]))


def _named(
    table: IcebergTable, options: EraseRowsOptions, history: IcebergTable | None, columns: Sequence[str]
) -> DataFrame:
    spark = table.spark
    if options.keys_table:
        return IcebergTable(spark, table.catalog, options.keys_table).read()
    if options.keys_uri:
        kind = options.keys_uri.rstrip("/").rpartition(".")[2].lower()
        if kind not in _READERS:
            raise InputError(
                f"options.keys_uri ends with {kind!r}.", table=table.name, hint=f"Use one of {', '.join(_READERS)}."
            )
        return spark.read.format(kind).options(**_READERS[kind]).load(options.keys_uri)
    if not options.condition:
        raise SpecError(
            "No option names the keys to erase.",
            table=table.name,
            hint="Give one of options.keys_table, options.keys_uri and options.condition.",
        )
    listed = list(map(quoted_column, columns))
    matching = table.read(columns=listed, where=options.condition)
    if history is None:
        return matching
    # a TRUNCATE in a history table has no key
    return matching.union(history.read(columns=listed, where=options.condition).dropna())


def _refuse_half_erased(table: IcebergTable, history: IcebergTable | None, keys: Keys) -> None:
    """Refuse a condition that may no longer match the rows of an unfinished erasure."""
    if unfinished_erasure(table.properties) in (None, keys.digest):
        return
    hint = "Name the keys by options.keys_table or options.keys_uri."
    before = [(each.name, ids[-1]) for each in (table, history) if each and (ids := snapshots_before(each))]
    if before:
        states = " and ".join(f"{name} VERSION AS OF {snapshot_id}" for name, snapshot_id in before)
        hint = f"Create a table with the keys of the rows that meet it in {states}, and name it in options.keys_table."
    raise InputError(
        "An erasure has not finished, and may have removed rows that met its condition.",
        table=table.name,
        hint=f"{hint} If it erased other rows, unset the table property {names.ERASED}.",
    )


def snapshots_before(table: IcebergTable) -> list[int]:
    """Return the parents of erasure snapshots that still exist, newest first."""
    parents = [snapshot.parent_id for snapshot in table.ancestors() if snapshot.summary.get(names.JOB) == JOB]
    return [parent for parent in parents if parent is not None and table.snapshot(parent) is not None]


@dataclass(frozen=True)
class Place:
    """A table that may contain keys.

    :param kind: its role for the table whose rows are erased.
    :param keys: the key values to join its rows with; ``columns`` are named as in the table.
    :param moved: column ``_lakecdc_old_key`` with the texts of the keys; None if the table has no such column.
    :param integers: key values that source positions may contain.
    """

    kind: str
    table: IcebergTable
    keys: DataFrame
    columns: tuple[str, ...]
    moved: DataFrame | None = None
    integers: Set[int] = frozenset()

    def holding(self, rows: DataFrame) -> DataFrame:
        """Select the rows with a key, current or former."""
        matching = rows.join(F.broadcast(self.keys), list(self.columns), "left_semi")
        if self.moved is None:
            return matching
        rest = rows.join(F.broadcast(self.keys), list(self.columns), "left_anti")
        return matching.unionByName(rest.join(F.broadcast(self.moved), OLD_KEY_COLUMN, "left_semi"))

    def without(self, rows: DataFrame) -> DataFrame:
        """Select the rows to keep, with erased keys removed from ``_lakecdc_old_key``."""
        left = rows.join(F.broadcast(self.keys), list(self.columns), "left_anti")
        if self.moved is None:
            return left
        known = self.moved.withColumn(_MATCHED, F.lit(True))
        joined = left.join(F.broadcast(known), OLD_KEY_COLUMN, "left")
        return joined.withColumn(OLD_KEY_COLUMN, F.when(F.col(_MATCHED).isNull(), F.col(OLD_KEY_COLUMN))).drop(_MATCHED)


def places(table: IcebergTable, keys: Keys, options: EraseRowsOptions, history: IcebergTable | None) -> list[Place]:
    """Return every table that may contain one of the keys, the table itself last; refuse what cannot be judged."""
    searched = [*_beside(table, keys, options, history), _keyed("table", table, keys)]
    mentions = mentions_of(keys, searched)
    audited = _audited(table, mentions)
    return [replace(place, integers=mentions.integers) for place in (audited, *searched) if place]


def mentions_of(keys: Keys, searched: Sequence[Place]) -> Mentions:
    """Collect the key values to search for in texts about some tables; the table itself comes last."""
    texts = keys.frame.select(*[F.col(quoted_column(column)).cast("string") for column in keys.columns]).collect()
    by_cursor = cursor_may_be_key(searched[-1].table, keys.columns)
    return Mentions(keys.columns, texts, {place.table.name for place in searched}, by_cursor=by_cursor)


def _beside(
    table: IcebergTable, keys: Keys, options: EraseRowsOptions, history: IcebergTable | None
) -> Iterator[Place]:
    if history is not None:
        yield _keyed("history", history, keys)
    for name in options.further_tables.get(table.name, ()):
        yield _keyed("further", IcebergTable(table.spark, table.catalog, name), keys)

    def beside(name: str) -> IcebergTable | None:
        return open_if_there(table.spark, table.catalog, name)

    if deletes := beside(table.name + names.DELETES_SUFFIX):
        yield _keyed("remembered_deletes", deletes, keys)
    own = names.quarantine_of(table.name, options.quarantine_table)
    for name in dict.fromkeys((own, names.quarantine_of(table.name))):
        if quarantine := beside(name):
            yield _quarantined(quarantine, table, keys)
    if parked := beside(names.parked_of(table.name)):
        yield _parked(parked, table)


def _audited(table: IcebergTable, mentions: Mentions) -> Place | None:
    """Return the audit rows that mention a key, as runs with ``report_values`` write, or None if there are none."""
    audit = open_if_there(table.spark, table.catalog, names.AUDIT)
    if audit is None:
        return None
    # an unfinished erasure may have removed the rows but not the older snapshots
    states = [None, *(snapshots_before(audit) if unfinished_erasure(table.properties) else [])]
    rows = reduce(DataFrame.union, [audit.read(state, ["row_id", "`table`", "reason", "metrics"]) for state in states])
    about = rows.where(F.col("table").isin(*mentions.tables)).drop("table")
    mentioning = (
        run_tasks(about, partial(rows_with_mentions, mentions=mentions), "row_id string").distinct().localCheckpoint()
    )
    if mentioning.isEmpty():
        return None
    return Place("audit", audit, mentioning, ("row_id",))


def _keyed(kind: str, table: IcebergTable, keys: Keys) -> Place:
    types = spark_types(table)
    if missing := [column for column in keys.columns if column not in types]:
        raise InputError(f"It has no column {missing[0]!r} of the key.", table=table.name)
    # a narrower column cannot contain a key that does not fit
    values = keys.frame.select(*[F.col(quoted_column(c)).try_cast(types[c]).alias(c) for c in keys.columns]).dropna()
    moved = None
    if OLD_KEY_COLUMN in types:
        orders = [F.struct(*map(quoted_column, order)) for order in permutations(keys.columns)]
        texts = [text for order in orders for text in (exact_json(order), F.to_json(order))]
        moved = keys.frame.select(F.explode(F.array(*texts)).alias(OLD_KEY_COLUMN)).distinct()
    return Place(kind, table, values, keys.columns, moved)


def _quarantined(quarantine: IcebergTable, table: IcebergTable, keys: Keys) -> Place:
    """Select quarantined messages by key, or refuse the erasure if undecoded messages may have one."""
    # quarantined keys are in the source's column order, without names
    texts = F.array(*[key_text(order) for order in permutations(keys.columns)])
    values = keys.frame.select(F.lit(table.name).alias("target"), F.explode(texts).alias("row_key")).distinct()
    waiting = quarantine.read().where(F.col("target") == table.name)
    count = waiting.where("row_key IS NULL AND (raw_key IS NOT NULL OR raw_value IS NOT NULL)").count()
    if len(keys.columns) > 1:
        count += waiting.join(F.broadcast(values), ["target", "row_key"], "left_semi").count()
    if count:
        raise InputError(
            f"Cannot tell whether {count} messages in {quarantine.name} are about the keys.",
            table=table.name,
            hint="Replay them (replay_quarantine) or dismiss them (clean_side_tables); nothing was erased.",
        )
    return Place("quarantine", quarantine, values, ("target", "row_key"))


def _parked(parked: IcebergTable, table: IcebergTable) -> Place:
    """Select the rounds parked for the table, or refuse the erasure while some are not applied."""
    values = table.spark.createDataFrame([(table.name,)], "target string")
    if parked.read().where(F.col("target") == table.name).take(1):
        raise InputError(
            f"Rounds of its log are parked in {parked.name} and may contain the keys.",
            table=table.name,
            hint="Run ingest to apply them, then erase.",
        )
    return Place("parked", parked, values, ("target",))
