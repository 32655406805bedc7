"""The tables that may hold a key: the table itself, and what is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import permutations
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import OLD_KEY_COLUMN
from lakecdc.erase.cursors import cursor_may_be_key
from lakecdc.erase.keys import Keys, key_text, snapshots_before
from lakecdc.erase.mentions import Mentions, mentioned
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest.formats.changes import exact_json
from lakecdc.ingest.sources.log import parking
from lakecdc.metadata import names
from lakecdc.metadata.erasure import unfinished_erasure
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

    from lakecdc.contract.erasing import EraseRowsOptions

_HELD = "_lakecdc_held"


@dataclass(frozen=True)
class Place:
    """A table that may hold keys.

    :param kind: what it is to the table whose rows go.
    :param wanted: what its rows are held against.
    :param columns: of ``wanted``, as the table calls them.
    :param moved: column ``_lakecdc_old_key`` with the texts of the keys; None if the table has no such column.
    :param integers: of the keys, which source positions may hold.
    """

    kind: str
    table: IcebergTable
    wanted: DataFrame
    columns: tuple[str, ...]
    moved: DataFrame | None = None
    integers: Set[int] = frozenset()

    def holding(self, rows: DataFrame) -> DataFrame:
        """Rows that hold a key, as their own or as the one that they had before."""
        held = rows.join(F.broadcast(self.wanted), list(self.columns), "left_semi")
        if self.moved is None:
            return held
        rest = rows.join(F.broadcast(self.wanted), list(self.columns), "left_anti")
        return held.unionByName(rest.join(F.broadcast(self.moved), OLD_KEY_COLUMN, "left_semi"))

    def without(self, rows: DataFrame) -> DataFrame:
        """The rows that stay; those of other keys no longer tell that they once had one of these."""
        left = rows.join(F.broadcast(self.wanted), list(self.columns), "left_anti")
        if self.moved is None:
            return left
        known = self.moved.withColumn(_HELD, F.lit(True))
        told = left.join(F.broadcast(known), OLD_KEY_COLUMN, "left")
        return told.withColumn(OLD_KEY_COLUMN, F.when(F.col(_HELD).isNull(), F.col(OLD_KEY_COLUMN))).drop(_HELD)


def places(table: IcebergTable, keys: Keys, options: EraseRowsOptions, history: IcebergTable | None) -> list[Place]:
    """Every table that may hold one of the keys; the table itself comes last.

    :raises InputError: a table that is named does not exist, or has no such columns; messages wait of which nobody can
        tell whether they are about one of the keys; or the table has not taken all of its log.
    """
    found = [*_named(table, keys, options, history), *_beside(table, keys, options), _keyed("table", table, keys)]
    mentions = mentions_of(keys, found)
    audited = _audited(table, mentions)
    return [replace(place, integers=mentions.integers) for place in (audited, *found) if place]


def mentions_of(keys: Keys, found: Sequence[Place]) -> Mentions:
    """Collect what texts about some places are searched for.

    :param found: the table itself comes last.
    """
    texts = keys.frame.select(*[F.col(quoted_column(column)).cast("string") for column in keys.columns]).collect()
    by_cursor = cursor_may_be_key(found[-1].table, keys.columns)
    return Mentions(keys.columns, texts, {place.table.name for place in found}, by_cursor=by_cursor)


def _named(table: IcebergTable, keys: Keys, options: EraseRowsOptions, history: IcebergTable | None) -> Iterator[Place]:
    if history is not None:
        yield _keyed("history", history, keys)
    for name in options.further_tables.get(table.name, ()):
        yield _keyed("further", IcebergTable(table.spark, table.catalog, name), keys)


def _beside(table: IcebergTable, keys: Keys, options: EraseRowsOptions) -> Iterator[Place]:
    def beside(name: str) -> IcebergTable | None:
        return open_if_there(table.spark, table.catalog, name)

    if deletes := beside(table.name + names.DELETES_SUFFIX):
        yield _keyed("remembered_deletes", deletes, keys)
    own = names.quarantine_of(table.name, options.quarantine_table)
    for name in dict.fromkeys((own, names.quarantine_of(table.name))):
        if kept := beside(name):
            yield _quarantined(kept, table, keys)
    if parked := beside(parking.table_name(table.name)):
        yield _parked(parked, table)


def _audited(table: IcebergTable, mentions: Mentions) -> Place | None:
    """Rows of the audit that mention a key, as a run with ``report_values`` leaves them; None if there are none."""
    audit = open_if_there(table.spark, table.catalog, names.AUDIT)
    if audit is None:
        return None
    # an erasure that has not ended may have removed the rows, and not the snapshots before
    states = [None, *(snapshots_before(audit) if unfinished_erasure(table.properties) else [])]
    rows = reduce(DataFrame.union, [audit.read(state, "row_id, `table`, reason, metrics") for state in states])
    about = rows.where(F.col("table").isin(*mentions.tables)).drop("table")
    found = about.mapInArrow(partial(mentioned, mentions=mentions), "row_id string").distinct().localCheckpoint()
    if found.isEmpty():
        return None
    return Place("audit", audit, found, ("row_id",))


def _keyed(kind: str, table: IcebergTable, keys: Keys) -> Place:
    types = spark_types(table)
    if missing := [column for column in keys.columns if column not in types]:
        raise InputError(f"It has no column {missing[0]!r} of the key.", table=table.name)
    # a column of a narrower type holds no key that does not fit it
    wanted = keys.frame.select(*[F.col(quoted_column(c)).try_cast(types[c]).alias(c) for c in keys.columns]).dropna()
    moved = None
    if OLD_KEY_COLUMN in types:
        orders = [F.struct(*map(quoted_column, order)) for order in permutations(keys.columns)]
        texts = [text for order in orders for text in (exact_json(order), F.to_json(order))]
        moved = keys.frame.select(F.explode(F.array(*texts)).alias(OLD_KEY_COLUMN)).distinct()
    return Place(kind, table, wanted, keys.columns, moved)


def _quarantined(kept: IcebergTable, table: IcebergTable, keys: Keys) -> Place:
    """Select messages by their key. Refuse those that may be about one: their values are encoded as the source has it.

    :raises InputError: there are some.
    """
    # the columns of a key are there in the order of its source, without names
    texts = F.array(*[key_text(order) for order in permutations(keys.columns)])
    wanted = keys.frame.select(F.lit(table.name).alias("target"), F.explode(texts).alias("row_key")).distinct()
    waiting = kept.read().where(F.col("target") == table.name)
    count = waiting.where("row_key IS NULL AND (raw_key IS NOT NULL OR raw_value IS NOT NULL)").count()
    if len(keys.columns) > 1:
        count += waiting.join(F.broadcast(wanted), ["target", "row_key"], "left_semi").count()
    if count:
        raise InputError(
            f"Cannot tell whether {count} messages in {kept.name} are about the keys.",
            table=table.name,
            hint="Replay them (replay_quarantine) or dismiss them (clean_side_tables); nothing was erased.",
        )
    return Place("quarantine", kept, wanted, ("target", "row_key"))


def _parked(parked: IcebergTable, table: IcebergTable) -> Place:
    """What is parked is not decoded to keys: the table has to take it first, and then what it was goes."""
    wanted = table.spark.createDataFrame([(table.name,)], "target string")
    if parked.read().where(F.col("target") == table.name).take(1):
        raise InputError(
            f"Rounds of its log are parked in {parked.name}, and may hold the keys.",
            table=table.name,
            hint="Run ingest, which takes them, and then erase.",
        )
    return Place("parked", parked, wanted, ("target",))
