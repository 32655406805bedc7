"""Clean a batch: rename, compute and select columns, filter rows, track the event time.

Rows below the table's floor (see ``floor``) are always outside the filter. If the source left out a value that a
computed column needs, that column is open too, and is computed after the row is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Cleaning, Target
from lakecdc.iceberg.expressions import depends_on_row_alone, referenced_columns
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.fold import is_open
from lakecdc.sql import quoted_column, sql_type

# a change while its row's columns are top-level, for expressions
_CHANGE = "_lakecdc_change"
# microseconds from 1970 to 31 December 9999, and the same span back
_MOST_MICROS = 253_402_214_400_000_000
# a row before cleaning, beside the one after it
_RAW = "_lakecdc_raw"


def clean_for_table(table: IcebergTable, batch: Batch) -> Batch:
    """Clean a batch for a table, and leave out rows that have expired from it."""
    return cleaned(table.spark, held_against(batch, table))


def cleaned(spark: SparkSession, batch: Batch) -> Batch:
    """Apply the target's cleaning to every event; the resulting filter includes the floor.

    :raises InputError: Spark refuses an expression, or a column does not exist; nothing is written.
    """
    clean = batch.target.clean
    if clean is None:
        if _below(batch) is None:
            return batch
        clean = Cleaning()
    renamed = [replace(c, name=clean.renamed(c.name)) for c in batch.columns]
    key = tuple(clean.renamed(k) for k in batch.key)
    if batch.rows is None:
        # expressions are not checked, because the columns that they need are unknown without events
        selected = [c for c in _selected(clean, renamed, [], key) if c.name not in clean.compute]
        return replace(batch, key=key, columns=tuple(selected))
    _check_names(batch.target, clean, [c.name for c in batch.columns], key)
    computed = _computed(spark, batch.target, clean, renamed)
    selected = _selected(clean, renamed, computed, key)
    if clean.filter and _type(spark, batch.target, selected, clean.filter, "filter") != "boolean":
        raise InputError(f"clean.filter {clean.filter!r} is not a condition.", table=batch.target.table)
    rows = batch.rows
    batch = replace(batch, key=key, columns=tuple(selected))
    clean = _above_floor(clean, batch)
    batch = replace(batch, target=replace(batch.target, clean=clean))
    changes = _with_key(rows.frame, key)
    inputs = {name: _inputs(spark, renamed, sql) for name, sql in clean.compute.items()}
    changes = _reopened(changes, clean, inputs, [c.name for c in selected])
    changes = _rows(changes, clean, renamed, selected)
    if clean.filter and (batch.full_load or not batch.target.keyed):
        changes = _filtered(changes, batch, clean.filter)
    return replace(batch, rows=rows.with_frame(changes)).with_facts(**_watermark(changes, clean))


def _below(batch: Batch) -> str | None:
    """Return the condition of rows below the floor, which is never null; None if no row can be."""
    return batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None


def _expired(batch: Batch) -> Expression:
    """Return the condition that a row with placeholders, as top-level columns, is certainly below the floor."""
    below, column = _below(batch), batch.commit.floor.column if batch.commit.floor else None
    if below is None:
        return F.lit(False)
    is_known = ~F.exists(f"{_CHANGE}.open", lambda name: F.lower(name) == F.lit(str(column).lower()))
    return F.coalesce(is_known, F.lit(True)) & F.expr(below)


def _above_floor(clean: Cleaning, batch: Batch) -> Cleaning:
    below = _below(batch)
    if below is None:
        return clean
    return replace(clean, filter=f"NOT {below}" if clean.filter is None else f"({clean.filter}) AND NOT {below}")


def outside(spark: SparkSession, rows: DataFrame, batch: Batch) -> DataFrame:
    """Turn rows that leave values out into deletes if they are outside the filter regardless of those values.

    They cannot be completed, because the table does not have rows outside the filter.

    :param rows: folded rows, ``key, op, row, open, …``.
    """
    clean = batch.target.clean
    if clean is None or clean.filter is None:
        return rows
    needs = sorted(_inputs(spark, list(batch.columns), clean.filter))
    is_known = ~F.arrays_overlap(f"{_CHANGE}.open", F.array(*map(F.lit, needs)).cast("array<string>"))
    # placeholders must not reach the expression
    stays = F.when(is_known, F.expr(f"coalesce({clean.filter}, false)")).otherwise(F.lit(True))
    spread = _spread(rows, {c.name: c.name for c in batch.columns})
    expired = _expired(batch)
    judged = spread.select(f"{_CHANGE}.*", (~stays | expired).alias("leaves"), expired.alias("expired"))
    leaves = is_open() & F.col("leaves")
    if batch.commit.floor is not None:
        batch.commit.floor.count(judged.where(is_open() & F.col("expired") & (F.col("op") != "d")))
    op, left_out = F.when(leaves, "d").otherwise(F.col("op")), F.when(~leaves, F.col("open"))
    return judged.withColumns({"op": op, "open": left_out}).drop("leaves", "expired")


def opened(folded: DataFrame, batch: Batch) -> set[str]:
    """Return the columns that are open in a folded row, if the target computes any."""
    if batch.target.clean is None or not batch.target.clean.compute:
        return set()
    return {row[0] for row in folded.where(is_open()).select(F.explode("open")).distinct().collect()}


def completed(spark: SparkSession, rows: DataFrame, batch: Batch, were_open: set[str]) -> DataFrame:
    """Recompute columns that were computed from a placeholder, then filter the rows.

    :param rows: folded rows without placeholders, ``key, op, row, …``.
    :param were_open: result of :func:`opened`.
    :raises InputError: a computed column needs a value that the source left out and the table lacks.
    """
    clean = batch.target.clean
    if clean is None:
        return rows
    if were_open:
        rows = _computed_again(spark, rows, batch, clean, were_open)
    if clean.filter:
        stays = f"coalesce({clean.filter}, false)"
        rows = _spread(rows, {c.name: c.name for c in batch.columns})
        if batch.commit.floor is not None and (below := _below(batch)):
            batch.commit.floor.count(rows.where(f"{_CHANGE}.op != 'd' AND {below}"))
        rows = rows.select(f"{_CHANGE}.*", F.expr(stays).alias("stays"))
        leaves = (F.col("op") != "d") & ~F.col("stays")
        rows = rows.withColumn("op", F.when(leaves, "d").otherwise(F.col("op"))).drop("stays")
    return rows


def set_apart(spark: SparkSession, batch: Batch) -> tuple[Batch, DataFrame] | None:
    """Split off the events for which an expression of the batch's cleaning fails.

    :param batch: not cleaned yet.
    :return: the batch with every other event and the fact ``rows_read``, and those events with ``misfit``, the column
        or ``filter`` that fails; None if there are none.
    """
    clean = batch.target.clean
    if clean is None or batch.rows is None:
        return None
    events = batch.rows.every_event()
    renamed = [replace(c, name=clean.renamed(c.name)) for c in batch.columns]
    names = dict(zip((c.name for c in batch.columns), (c.name for c in renamed), strict=True))
    seen = Observation()
    misfits, rest = _parted(_spread(events.frame, names), clean.compute, seen)
    if misfits.isEmpty() and clean.filter:
        selected = _selected(clean, renamed, _computed(spark, batch.target, clean, renamed), batch.target.key)
        computed = _rows(events.frame.withColumn(_RAW, F.col("row")), clean, renamed, selected)
        seen = Observation()
        parted = _parted(_spread(computed, {c.name: c.name for c in selected}), {"filter": clean.filter}, seen)
        misfits, rest = (part.drop("row").withColumnRenamed(_RAW, "row") for part in parted)
    if misfits.isEmpty():
        return None
    moved = misfits.where("old_key IS NOT NULL").select(F.col("order").alias("at"), F.col("old_key").alias("was"))
    if not moved.isEmpty():
        # a key update is two events of one place
        of_moved = (F.col("order") == F.col("at")) & F.col("key").eqNullSafe(F.col("was"))
        rest = rest.join(F.broadcast(moved), of_moved, "left_anti")
    fitting = events.with_frame(rest.select(*events.frame.columns))
    return replace(batch, rows=fitting).with_facts(rows_read=seen.get["rows"]), misfits


def _parted(spread: DataFrame, expressions: Mapping[str, str], seen: Observation) -> tuple[DataFrame, DataFrame]:
    """Return the changes for which an expression fails, and the others; ``seen`` observes the number of all ``rows``.

    Spark's ``try_to_binary`` is null if anything fails within it, and ``to_json`` evaluates the value.
    """
    fails = "try_to_binary(if(length(to_json(struct(({0}) AS x))) >= 0, '00', '01'), 'hex') IS NULL"
    failing = [F.when(F.expr(fails.format(sql)), F.lit(name)) for name, sql in expressions.items()]
    misfit = F.coalesce(*failing) if failing else F.lit(None).cast("string")
    judged = spread.select(f"{_CHANGE}.*", misfit.alias("misfit"))
    counted = judged.observe(seen, F.count(F.lit(1)).alias("rows"))
    misfits = counted.where("row IS NOT NULL AND misfit IS NOT NULL").localCheckpoint()
    # a join by order key is not possible: all rows of a full load have the same one, and others may too
    return misfits, judged.where("row IS NULL OR misfit IS NULL").drop("misfit")


def known_source_types(target: Target, types: Mapping[str, str]) -> dict[str, str]:
    """Return the types of a table's columns by their names at the source, without computed ones."""
    clean = target.clean
    if clean is None:
        return dict(types)
    back = {new: old for old, new in clean.rename.items()}
    return {back.get(name, name): kind for name, kind in types.items() if name not in clean.compute}


def _check_names(target: Target, clean: Cleaning, there: list[str], key: tuple[str, ...]) -> None:
    lost = sorted({*clean.rename, *target.key} - set(there)) if there else []
    if lost:
        raise InputError(f"clean names {lost}, which the source does not have.", table=target.table)
    after = [clean.renamed(name) for name in there]
    if clean.rename and len({name.lower() for name in after}) < len(after):
        raise InputError("clean.rename uses the name of another column.", table=target.table)
    if set(key) & set(clean.compute):
        raise InputError("A key column cannot be computed.", table=target.table, hint="Compute another column.")
    known = {*after, *clean.compute}
    for name in (*clean.select, *([clean.event_time] if clean.event_time else [])):
        if name not in known:
            raise InputError(f"clean names the column {name!r}, which does not exist.", table=target.table)
    if clean.select and clean.event_time and clean.event_time not in (*clean.select, *key):
        raise InputError(
            f"clean.select leaves out {clean.event_time!r}, the column of clean.event_time.", table=target.table
        )


def _computed(spark: SparkSession, target: Target, clean: Cleaning, renamed: list[Column]) -> list[Column]:
    return [Column(name, _type(spark, target, renamed, sql, name)) for name, sql in clean.compute.items()]


def _selected(clean: Cleaning, renamed: list[Column], computed: list[Column], key: tuple[str, ...]) -> list[Column]:
    replaced = {c.name: c for c in computed}
    there = [replaced.pop(c.name, c) for c in renamed]
    there += replaced.values()
    return [c for c in there if not clean.select or c.name in clean.select or c.name in key]


def _type(spark: SparkSession, target: Target, columns: list[Column], sql: str, what: str) -> str:
    try:
        # used in a struct next to other columns, as later, Spark refuses aggregates and generators
        empty = spark.range(0).select(*[F.lit(None).cast(c.type).alias(c.name) for c in columns])
        checked = empty.select("*", F.struct(F.expr(sql).alias("x")).alias("made"))
        kind = sql_type(checked.select("made.x").schema["x"].dataType)
    except Exception as error:
        raise InputError(
            f"clean: Spark refuses the expression of {what!r}: {str(error).splitlines()[0]}",
            table=target.table,
            hint=f"It can use these columns: {', '.join(c.name for c in columns)}.",
        ) from error
    if not depends_on_row_alone(checked):
        raise InputError(
            f"clean: the expression of {what!r} is not deterministic, or depends on other rows of a batch: a repeated "
            "row would get other values.",
            table=target.table,
            hint="Compute it only from columns of the row, such as a hash of the key instead of uuid().",
        )
    return kind


def _inputs(spark: SparkSession, columns: list[Column], sql: str) -> set[str]:
    """Return the columns that an expression needs."""
    named = {name.lower() for name in referenced_columns(spark, sql)}
    return {c.name for c in columns if "*" in named or c.name.lower() in named}


def _with_key(changes: DataFrame, key: tuple[str, ...]) -> DataFrame:
    def struct(name: str) -> Expression:
        there = changes.select(f"{name}.*").columns
        named = F.struct(*[F.col(name)[old].alias(new) for old, new in zip(there, key, strict=True)])
        return F.when(F.col(name).isNotNull(), named)

    return changes.withColumns({"key": struct("key"), "old_key": struct("old_key")}) if key else changes


def _reopened(changes: DataFrame, clean: Cleaning, inputs: Mapping[str, set[str]], selected: list[str]) -> DataFrame:
    """Rename open columns, and mark computed columns as open if one of their inputs is."""
    names = F.col("open")
    if clean.rename:
        renames = F.create_map(*[F.lit(x) for pair in clean.rename.items() for x in pair])
        names = F.transform(names, lambda n: F.coalesce(F.try_element_at(renames, n), n))
    more = [
        F.when(F.arrays_overlap(names, F.array(*map(F.lit, sorted(needs)))), F.lit(name))
        for name, needs in inputs.items()
        if needs
    ]
    if more:
        # a computed column that replaces a source column is open only if its inputs are
        plain = F.filter(names, lambda n: ~n.isin(*inputs))
        names = F.array_distinct(F.concat(plain, F.array_compact(F.array(*more))))
    names = F.filter(names, lambda n: n.isin(*selected))
    return changes.withColumn("open", F.when(F.col("open").isNotNull() & (F.size(names) > 0), names))


def _spread(changes: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Return the row's columns as top-level columns under new names, beside the change in one column."""
    columns = [F.col("row")[old].alias(new) for old, new in names.items()]
    return changes.select(F.struct(*changes.columns).alias(_CHANGE), *columns)


def _rows(changes: DataFrame, clean: Cleaning, renamed: list[Column], selected: list[Column]) -> DataFrame:
    old = {new: name for name, new in clean.rename.items()}
    spread = _spread(changes, {old.get(c.name, c.name): c.name for c in renamed})
    values = [
        (F.expr(clean.compute[c.name]) if c.name in clean.compute else F.col(quoted_column(c.name))).alias(c.name)
        for c in selected
    ]
    return _put_row(spread, values)


def _put_row(spread: DataFrame, values: list[Expression]) -> DataFrame:
    computed = spread.select(_CHANGE, F.struct(*values).alias("made"))
    row = F.when(F.col(f"{_CHANGE}.row").isNotNull(), F.col("made"))
    return computed.select(f"{_CHANGE}.*", row.alias("made")).drop("row").withColumnRenamed("made", "row")


def _filtered(changes: DataFrame, batch: Batch, condition: str) -> DataFrame:
    """Drop events of rows outside the filter; an update that may have left it becomes a delete."""
    spread = _spread(changes, {c.name: c.name for c in batch.columns})
    if batch.commit.floor is not None and (below := _below(batch)):
        spread = batch.commit.floor.observe(spread, F.expr(f"{_CHANGE}.op != 'd' AND {below}"))
    judged = spread.select(f"{_CHANGE}.*", F.expr(f"coalesce({condition}, false)").alias("stays"))
    judged = judged.where("op = 'd' OR op = 'u' OR stays")
    left = (F.col("op") == "u") & ~F.col("stays")
    row = F.when(~left, F.col("row"))
    op = F.when(left, F.lit("d")).otherwise(F.col("op"))
    return judged.withColumns({"op": op, "row": row}).drop("stays")


def _computed_again(spark: SparkSession, rows: DataFrame, batch: Batch, clean: Cleaning, opened: set[str]) -> DataFrame:
    columns = list(batch.columns)
    names = [c.name for c in columns]
    again = {name: sql for name, sql in clean.compute.items() if name in opened}
    for name, sql in again.items():
        needs = {n.lower() for n in referenced_columns(spark, sql)}
        if name.lower() in needs or not needs <= {"*", *(n.lower() for n in names)}:
            raise InputError(
                f"The source left large values out of its events, and {name!r} is computed from a column that the "
                "table lacks.",
                table=batch.target.table,
                hint="Select its inputs under their own names in clean.select, or set REPLICA IDENTITY FULL.",
            )
    if not again:
        return rows
    spread = _spread(rows, {n: n for n in names})
    return _put_row(spread, [(F.expr(again[n]) if n in again else F.col(quoted_column(n))).alias(n) for n in names])


def _watermark(changes: DataFrame, clean: Cleaning) -> dict[str, str]:
    """Return the newest event time less the lateness, ISO-8601, UTC."""
    if clean.event_time is None:
        return {}
    # ignore values that are not moments, or not in Python's range
    moment = F.unix_micros(F.col("row")[clean.event_time].try_cast("timestamp"))
    micros = F.max(F.when(F.abs(moment) <= _MOST_MICROS, moment)).alias("newest")
    row = changes.agg(micros).first()
    if row is None or row["newest"] is None:
        return {}
    newest = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["newest"])
    return {"watermark": (newest - timedelta(seconds=clean.lateness_seconds)).isoformat()}
