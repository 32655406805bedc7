"""The quarantine: complete messages that cannot be applied, so that none is lost and the run continues.

One Iceberg table per namespace, ``<namespace>.lakecdc_quarantine`` or the option ``quarantine_table``, partitioned by
target: the raw key, value and headers, the place at the source, the order key if it is known, the broken rule and the
reason, and when the message was first seen. A message is stored once per target, also after replays; if a source starts
over, the same place in the next epoch is another message. For a source without messages the event itself is stored
(``engine.kept_rows``). ``replay_quarantine`` applies them. Columns that the target excludes are removed; a value from
which they cannot be removed is ``withheld``, and so is the content of messages that may be of erased rows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.feeding import FeedingOptions
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, count_rows, delete_rows, open_if_there
from lakecdc.ingest.batch import Batch, Rejected
from lakecdc.ingest.engine.kept_rows import kept_json
from lakecdc.ingest.erased import withhold_erased
from lakecdc.ingest.excluded import key_without, value_without
from lakecdc.ingest.formats.changes import REJECTED, row_key
from lakecdc.ingest.formats.messages import HEADERS
from lakecdc.ingest.formats.text_columns import JUDGED
from lakecdc.metadata.names import quarantine_of
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS
from lakecdc.sql import exact_json, sql_types, temporary_view

#: rule of a row whose unchanged values are in neither the batch nor the table
LOST_RULE = "unchanged"
#: rule of an event with a value that fails an expression of ``clean``
CLEAN_RULE = "clean"
_LOST = (
    "the source left out unchanged values (REPLICA IDENTITY FULL would include them), and neither batch nor table has "
    "them: "
)
# epoch of the source's identity; empty without an order key
_EPOCH = "coalesce(substr(order_key, 1, 4), '')"
# a row of a full load has the same place when it is read again
_READ = "full load "
_PLACE = f"if(op = 'r', concat('{_READ}', {{}}), concat(order, ' ', key)) AS place"
_KEY = "key"
_VALUES = "concat(sha2(to_json(row), 256), '#', row_number() OVER (PARTITION BY to_json(row) ORDER BY order))"
# the row itself is stored, not a message
_IS_ROW = f"(startswith(place, '{_READ}') OR coalesce(substr(place, 1, length(order_key)) = order_key, false))"
# targets fed at the same time share a quarantine, which only one can create
_creating = threading.Lock()
#: column name, type, NOT NULL
COLUMNS = (
    ("target", "string", True),
    ("place", "string", True),
    ("rule", "string", True),
    ("reason", "string", True),
    ("first_seen", "timestamp", True),
    ("source_table", "string", False),
    ("source_time", "timestamp", False),
    ("order_key", "string", False),
    ("topic", "string", False),
    ("partition", "int", False),
    ("offset", "bigint", False),
    ("raw_key", "binary", False),
    ("raw_value", "binary", False),
    ("headers", HEADERS, False),
    ("row_key", "string", False),
    ("withheld", "boolean", False),
)


def table_name(options: FeedingOptions, target: str) -> str:
    return quarantine_of(target, options.quarantine_table)


def check_share(batch: Batch, options: FeedingOptions, events: int | None = None) -> None:
    """Refuse a batch if too many messages cannot be applied: then the feed is wrong, not single messages.

    :param options: options with the highest share, and whether the example may show the row's key.
    :param events: number of readable events; default: as the source reports it.
    :raises InputError: too many messages; the error has an example, and nothing is written.
    """
    rejected, facts, limit = batch.rejected, batch.source.facts, options.max_quarantined_fraction
    if rejected is None:
        return
    known = int(str(facts.get("events", facts.get("rows_read", 0)))) if events is None else events
    total = max(known + rejected.unreadable, rejected.count)
    # a database describes its columns itself, so a single row does not show that the feed is wrong
    most = max(limit * total, 1) if limit and "rows_read" in facts else limit * total
    if rejected.count <= most:
        return
    places = rejected.messages.withColumn("order_key", F.col("order")).withColumn("named", ~F.expr(_IS_ROW))
    example = places.select("place", "rule", "reason", "named").first()
    assert example is not None
    where = example["place"] if example["named"] or options.report_values else "a row"
    raise InputError(
        f"{rejected.count} of {total} messages cannot be applied, more than the share of {limit:g} that may be "
        f"quarantined; for example {where}: {example['reason']} ({example['rule']}).",
        table=batch.target.table,
        hint="Correct format, key, columns, encodings or infinity of the feed, or raise "
        "options.max_quarantined_fraction.",
        rejected=rejected.count,
    )


def of_incomplete(batch: Batch, events: DataFrame) -> Rejected:
    """Reject the messages of events, of an uncleaned batch, whose unchanged values are not recorded."""
    return of_events(batch, events, LOST_RULE, F.concat(F.lit(_LOST), F.array_join("open", ", ")))


def of_events(batch: Batch, events: DataFrame, rule: str, reason: Column) -> Rejected:
    """Reject the messages of events, or the rows themselves as JSON if there are no messages.

    A row of a full load is identified by its key, or else by its values, when it is read again.

    :param events: rows of a change frame that is not cleaned.
    """
    known = row_key("key", batch.key) if batch.key else F.lit(None).cast("string")
    lost = events.select("*", F.lit(rule).alias("rule"), reason.alias("reason"), known.alias("row_key"))
    lost = lost.localCheckpoint()
    as_json = lost.withColumns({"key": exact_json("key"), "value": kept_json(lost, batch.key, batch.source.columns)})
    rows = as_json.selectExpr(
        *("rule", "reason", "order", "source_time", "CAST(NULL AS string) AS topic", "CAST(NULL AS int) AS partition"),
        *("CAST(NULL AS bigint) AS offset", _PLACE.format(_KEY if batch.key else _VALUES)),
        *("CAST(key AS binary) AS key", "CAST(value AS binary) AS value"),
        *(f"CAST(NULL AS {HEADERS}) AS headers", "CAST(NULL AS string) AS source_table", "row_key"),
    ).select(*REJECTED)
    if batch.source.origin is not None:
        by_order = lost.groupBy("order", "rule").agg(F.first("reason").alias("reason"))
        messages = batch.source.origin(by_order).localCheckpoint()
        messages = messages.join(
            lost.groupBy(F.col("order").alias("asked")).agg(F.first("row_key").alias("row_key")), "asked"
        )
        without = rows.join(messages.select(F.col("asked").alias("order")), "order", "left_anti")
        rows = without.select(*REJECTED).unionByName(messages.select(*REJECTED))
    rows = rows.localCheckpoint()
    if batch.source.stays is not None:
        batch.source.stays(rows.select("place"))
    return Rejected(rows, lost.count())


def with_misfits(batch: Batch, misfits: DataFrame | None, events: int) -> Batch:
    """Reject events whose values do not fit, if any, and return the batch; ``events`` counts all of the source."""
    if misfits is None:
        return batch
    key = F.col("key")
    lacking = F.array_compact(F.array(*[F.when(key[k].isNull(), F.lit(k)) for k in batch.key]).cast("array<string>"))
    bad = misfits.withColumn("lacking", lacking)
    kinds = bad.select("misfits", "lacking").distinct().collect()
    if not kinds:
        return batch
    rejected = reduce(add, [_rejected(batch, bad, kind) for kind in kinds])
    return batch.with_rejected(rejected).with_facts(rows_read=events)


def _rejected(batch: Batch, bad: DataFrame, kind: Row) -> Rejected:
    """Reject the events whose values do not fit in the columns of ``kind``; these columns are stored as text."""
    misfits, lacking = kind["misfits"], kind["lacking"]
    events = bad.where((F.col("misfits") == _array(misfits)) & (F.col("lacking") == _array(lacking)))
    types = sql_types(events.select("row.*"))
    keyed, op = bool(batch.key), F.col("op")

    def member(name: str) -> Column:
        if name in misfits:
            return F.col("texts")[name]
        if not keyed:
            return F.col("row")[name]
        # a delete has only its key
        of_key = F.col("key")[name] if name in batch.key else F.lit(None).cast(types[name])
        return F.when(op == "d", of_key).otherwise(F.col("row")[name])

    def key_of(struct: str, texts: str, names: Sequence[str]) -> Column:
        members = [(F.col(texts) if k in names else F.col(struct))[k].alias(k) for k in batch.key]
        return F.when(F.col(struct).isNotNull(), F.struct(*members))

    images = {"row": F.struct(*[member(name).alias(name) for name in types])}
    if keyed:
        images |= {"key": key_of("key", "texts", lacking), "old_key": key_of("old_key", "old_texts", misfits)}
    events = events.withColumns(images)
    reason = "values do not fit their columns: " + ", ".join(f"{name} ({types[name]})" for name in misfits)
    return of_events(batch, events.drop(*JUDGED, "lacking"), "type", F.lit(reason))


def _array(names: Sequence[str]) -> Column:
    return F.array(*map(F.lit, names)).cast("array<string>")


def keep(table: IcebergTable, batch: Batch, target: IcebergTable | None, format_name: str | None = None) -> int:
    """Store a batch's rejected messages, except late ones of erased keys.

    :param table: the quarantine.
    :param target: the batch's table; None if it does not exist yet.
    :param format_name: format of the source's messages, from which the target's ``exclude_columns`` are removed.
    :return: number of new messages; a row that a full load reads again replaces the older one.
    """
    if batch.rejected is None:
        return 0
    same, epoch = ("target", "place", "epoch"), F.expr(_EPOCH)
    known = table.spark.table(table.sql_name).where(F.col("target") == batch.target.table).withColumn("epoch", epoch)
    new = _rows(batch.rejected.messages, batch.target.table).withColumn("epoch", epoch)
    new = _without_excluded(new, batch.target, format_name)
    new = withhold_erased(new, target, batch.key, batch.target.feed) if target is not None else new
    stored = known.select(*same, F.lit(True).alias("held"), F.col("order_key").alias("held_order"))
    is_newer = f"startswith(place, '{_READ}') AND held_order < order_key"
    rows = new.join(stored, list(same), "left").where(f"held IS NULL OR {is_newer}").localCheckpoint()
    for row in rows.where("held").select("epoch").distinct().collect():
        older = rows.where("held").where(F.col("epoch") == row["epoch"])
        release(table, batch.target.table, older.select("place"), row["epoch"])
    count = rows.count()
    if count:
        rows.select(*[c for c, _, _ in COLUMNS]).coalesce(1).writeTo(table.sql_name).append()
    return count


def _rows(rejected: DataFrame, target: str) -> DataFrame:
    columns = rejected.select(
        F.lit(target).alias("target"),
        *("place", "rule", "reason", "source_table", "source_time"),
        *("topic", "partition", "offset", "headers", "row_key"),
        F.current_timestamp().alias("first_seen"),
        F.col("order").alias("order_key"),
        F.col("key").alias("raw_key"),
        F.col("value").alias("raw_value"),
    )
    return _with_distinct_places(columns).dropDuplicates(["place"])


def _without_excluded(rejected: DataFrame, target: Target, format_name: str | None) -> DataFrame:
    """Remove excluded columns, which stored rows lack; messages without a remaining value become ``withheld``."""
    if not target.exclude_columns or format_name is None:
        return rejected.withColumn("withheld", F.lit(None).cast("boolean"))
    cut = {"raw_key": key_without(target), "raw_value": value_without(target, format_name)}
    of = {name: F.udf(function, "binary", useArrow=False)(name) for name, function in cut.items()}
    left = {f"{name}_left": F.when(F.expr(_IS_ROW), F.col(name)).otherwise(without) for name, without in of.items()}
    both = rejected.withColumns(left).localCheckpoint()
    withheld = F.when(F.col("raw_value").isNotNull() & F.col("raw_value_left").isNull(), F.lit(True))
    return both.withColumns({"withheld": withheld, **{name: F.col(f"{name}_left") for name in cut}}).drop(*left)


def _with_distinct_places(rejected: DataFrame) -> DataFrame:
    """Give equal messages of one file distinct places; a message that is rejected twice stays one."""
    arrival = F.substring("order_key", EVENT_DIGITS + 1, ARRIVAL_DIGITS)
    number = F.dense_rank().over(Window.partitionBy("place").orderBy(arrival))
    place = F.when(number > 1, F.concat_ws("~", "place", number.cast("string"))).otherwise(F.col("place"))
    return rejected.withColumn("place", place)


def epochs(table: IcebergTable, target: str, rules: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return the epochs of messages that broke one of the rules, or any, and whether rows themselves are stored."""
    rows = _there(table, target, rules).selectExpr(f"{_EPOCH} AS epoch", f"{_IS_ROW} AS own").distinct().collect()
    return sorted((row["epoch"], row["own"]) for row in rows)


def messages(table: IcebergTable, target: str, rules: Sequence[str] = (), epoch: str | None = None) -> DataFrame:
    """Return a target's messages, of one of the :func:`epochs` or all, as a message frame in the order of arrival."""
    stored = _there(table, target, rules).where(~F.expr(_IS_ROW))
    if epoch is not None:
        stored = stored.where(F.expr(_EPOCH) == epoch)
    # the order key ends with the place of arrival
    arrival = "CAST(conv(substr(order_key, -16), 16, -10) AS bigint)"
    return stored.selectExpr(
        *("topic", "partition", "offset", "CAST(NULL AS timestamp) AS timestamp", "raw_key AS key"),
        *("raw_value AS value", "headers", f"coalesce({arrival}, offset, 0) AS arrival", "place"),
    )


def rows(table: IcebergTable, target: str, rules: Sequence[str], epoch: str, *, own: bool) -> DataFrame:
    """Return rejected messages of an epoch, ``formats.changes.REJECTED``; if ``own``, rows stored themselves."""
    stored = _there(table, target, rules).where((F.expr(_EPOCH) == epoch) & (F.expr(_IS_ROW) == own))
    there = {"order": "order_key", "key": "raw_key", "value": "raw_value"}
    return stored.select(*[F.col(there.get(name, name)).alias(name) for name in REJECTED])


def forget_rows(spark: SparkSession, catalog: str, name: str, target: str) -> None:
    """Delete a target's rows that are stored themselves, before a full load reads them again."""
    table = open_if_there(spark, catalog, name)
    if table is None or _rows_of(table, target, ()).where(_IS_ROW).isEmpty():
        return
    spark.sql(f"DELETE FROM {table.sql_name} WHERE target = :target AND {_IS_ROW}", {"target": target})


def waiting(spark: SparkSession, catalog: str, name: str, target: str) -> DataFrame | None:
    """Return keys and order keys of a target's messages, ``row_key, order``; None if none has a key."""
    table = open_if_there(spark, catalog, name)
    if table is None:
        return None
    keyed = _rows_of(table, target, ()).where("row_key IS NOT NULL AND order_key IS NOT NULL")
    keyed = keyed.select("row_key", F.col("order_key").alias("order"))
    return None if keyed.isEmpty() else keyed


def _there(table: IcebergTable, target: str, rules: Sequence[str]) -> DataFrame:
    """Return a target's messages that are not withheld."""
    return _rows_of(table, target, rules).where("withheld IS NULL")


def _rows_of(table: IcebergTable, target: str, rules: Sequence[str]) -> DataFrame:
    stored = table.spark.table(table.sql_name).where(F.col("target") == target)
    return stored.where(F.col("rule").isin(*rules)) if rules else stored


def release(table: IcebergTable, target: str, places: DataFrame, epoch: str) -> int:
    """Delete messages of an epoch by their ``place``, and return their number."""
    count = places.count()
    if count:
        with temporary_view(places) as view:
            table.spark.sql(
                f"DELETE FROM {table.sql_name} WHERE target = :target AND {_EPOCH} = :epoch "
                f"AND place IN (SELECT place FROM {view})",
                {"target": target, "epoch": epoch},
            )
    return count


def dismiss_quarantined(
    table: IcebergTable, target: str, rules: Sequence[str], seen_before: str, *, dry_run: bool = False
) -> int:
    """Delete messages that will not be replayed, and return their number.

    :param rules: only messages that broke one of these; default: all.
    :param seen_before: only messages that were first seen before this ISO-8601 moment.
    :param dry_run: only count them.
    :raises ConflictError: a replay is running.
    """
    where = "target = :target AND first_seen < CAST(:moment AS timestamp)"
    values = {"target": target, "moment": seen_before, **{f"rule{n}": rule for n, rule in enumerate(rules)}}
    if rules:
        where += f" AND rule IN ({', '.join(f':rule{n}' for n in range(len(rules)))})"
    return (count_rows if dry_run else delete_rows)(table, where, values)


def count_quarantined(table: IcebergTable, target: str) -> int:
    return count_rows(table, "target = :target", {"target": target})


def oldest_quarantined_orders(table: IcebergTable, target: str) -> list[str | None]:
    """Return the lowest order key of a target's messages, and None if a message has none; empty without messages."""
    row = _rows_of(table, target, ()).selectExpr("min(order_key) AS low", "count_if(order_key IS NULL) AS none").first()
    assert row is not None
    return [*([row["low"]] if row["low"] else []), *([None] if row["none"] else [])]


def newest_quarantined_order(table: IcebergTable, target: str) -> str | None:
    """Return the highest order key of a target's messages, or None if none has one."""
    row = _rows_of(table, target, ()).agg(F.max("order_key").alias("high")).first()
    return row["high"] if row else None


def create_quarantine(spark: SparkSession, catalog: str, name: str) -> IcebergTable:
    """Open the quarantine, or create it."""
    with _creating:
        return open_if_there(spark, catalog, name) or definition.create_side_table(
            spark, catalog, name, COLUMNS, partition_by=("target",), properties=definition.COPY_ON_WRITE
        )
