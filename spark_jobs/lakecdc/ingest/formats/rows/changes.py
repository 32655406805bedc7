"""From cells to the change frame: columns typed, order and key found, misfits set apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Column, Rows, alike
from lakecdc.ingest.formats.changes import REJECTED, listed, row_key
from lakecdc.ingest.formats.decoded import Decoded
from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.ingest.formats.rows.cells import Cells, misfit, stored_type, value
from lakecdc.ingest.formats.table_fields import chosen_type
from lakecdc.model.order import moment, order_sql
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class RowReading:
    """What a source knows that its rows do not tell.

    :param epoch: number of the source's identity, 0 to 65535.
    :param order_by: column that rises with every change of a row; None if arrival decides.
    :param times: the same column is the source's time of the row's last change.
    :param timestamp_format: how times are written in text.
    :param zone: zone of times in ``order_by`` that have none.
    :param lowest_without: a row without a value there lies below all others, instead of being no row.
    """

    epoch: int
    order_by: str | None = None
    times: bool = False
    timestamp_format: str | None = None
    zone: str = "UTC"
    lowest_without: bool = False


def decode_cells(
    cells: Cells, target: Target, known: Mapping[str, str], reading: RowReading, key: tuple[str, ...] | None = None
) -> Decoded:
    """Make changes of rows; each is the state of its key.

    :param known: Spark SQL types of the target's columns by name; empty if there is no table yet.
    :param key: the key columns; default: the target's.
    :return: the changes, persisted; the caller clears Spark's cache when the batch is done.
    :raises InputError: if key or order column are nowhere to be seen; nothing has been written then.
    """
    key = target.key if key is None else key
    if not cells.columns:
        # not even a record that could tell the columns
        return Decoded(tuple(Column(k, target.columns.get(k, "string")) for k in key), target.key)
    wanted = [c for c in cells.columns if c.name not in target.exclude_columns]
    _check_present(wanted, key, reading.order_by, target.table)
    columns = stored_columns(wanted, target, known)
    types = {c.name: c.type for c in columns}
    op = "u" if key and target.mode != "append" else "c"
    typed = _typed(cells.frame, wanted, types, reading.timestamp_format)
    position, time = _moment(reading, types, target.table)
    if reading.lowest_without:
        position = f"coalesce({position}, shiftleft(1L, 63))"
    ordered = typed.selectExpr("*", f"{position} AS position", f"{time} AS source_time")
    ordered = ordered.withColumn("order", F.expr(_order(reading.epoch)))
    both = _frame(ordered, key, op, reading.order_by).persist()
    total, rejections, newest = _measure(both)
    changes = both.where("rejected IS NULL").drop("rejected")
    rejected = both.where("rejected IS NOT NULL").select("rejected.*")
    return Decoded(
        columns,
        target.key,
        Rows(changes) if total else None,
        Rejected(rejected, rejections) if rejections else None,
        newest=newest,
        events=total,
    )


def stored_columns(cells: Sequence[Column], target: Target, known: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns that cells become.

    :param cells: with their types in the files.
    :param known: as for :func:`decode_cells`.
    """
    chosen = {c.name: chosen_type(target, c.name) for c in cells if c.name in target.columns}
    return tuple(Column(c.name, stored_type(c, chosen.get(c.name), known.get(c.name))) for c in cells)


def _check_present(columns: list[Column], key: tuple[str, ...], order_by: str | None, table: str) -> None:
    names = [c.name for c in columns]
    twice = alike(names)
    if twice:
        raise InputError(
            f"The columns {', '.join(twice)} differ in case alone, which the catalog cannot tell apart.",
            table=table,
            hint='Leave one out with "exclude_columns", or correct the headers of the files.',
        )
    missing = sorted({*key, *([order_by] if order_by else [])} - set(names))
    if missing:
        raise InputError(
            f"The source has no columns {', '.join(missing)}; it has {', '.join(names)}.",
            table=table,
            hint="Correct key and order column, whose case matters, or the format's settings.",
        )


def _typed(frame: DataFrame, columns: list[Column], types: Mapping[str, str], pattern: str | None) -> DataFrame:
    values = {c.name: value(c, types[c.name], pattern) for c in columns}
    row = F.struct(*[F.expr(sql).alias(name) for name, sql in values.items()])
    found = []
    for c in columns:
        sql = misfit(c, types[c.name], values[c.name], pattern)
        if sql:
            found.append(F.when(F.expr(sql), F.lit(f"{c.name} ({types[c.name]})")))
    return frame.select(*MESSAGE, "arrival", "problem", row.alias("row"), listed(found).alias("misfits"))


def _moment(reading: RowReading, types: Mapping[str, str], table: str) -> tuple[str, str]:
    """Return SQL of a row's coordinate in the order, and of its source time.

    :raises InputError: if the column's type has no order as a number.
    """
    nothing = "CAST(NULL AS timestamp)"
    if reading.order_by is None:
        return "0L", nothing
    kind, column = types[reading.order_by], f"row.{quoted_column(reading.order_by)}"
    if kind in _INTEGERS or (kind.startswith("decimal") and kind.endswith(",0)")):
        return f"try_cast({column} AS bigint)", nothing
    if kind not in ("date", "timestamp", "timestamp_ntz"):
        raise InputError(
            f"The order column {reading.order_by!r} is of type {kind}.",
            table=table,
            hint=f'Make it an integer, a date or a timestamp, as in "columns": {{"{reading.order_by}": "bigint"}}.',
        )
    moment = column if kind == "timestamp" else f"to_utc_timestamp(CAST({column} AS timestamp), '{reading.zone}')"
    return f"unix_micros({moment})", moment if reading.times else nothing


def _order(epoch: int) -> str:
    # with the sign turned, negative numbers sort below positive ones
    return order_sql(str(epoch), "(coalesce(position, 0L) ^ shiftleft(1L, 63))", "0", "8", "0", "arrival")


def _frame(rows: DataFrame, key: tuple[str, ...], op: str, order_by: str | None) -> DataFrame:
    members = [F.col("row")[k].alias(k) for k in key] or [F.lit(None).cast("string").alias("none")]
    keyed = rows.withColumn("new_key", F.struct(*members))
    nothing = F.lit(None)
    return keyed.select(
        F.lit(op).alias("op"),
        F.col("new_key").alias("key"),
        "row",
        nothing.cast("array<string>").alias("open"),
        F.when(F.lit(False), F.col("new_key")).alias("old_key"),
        "order",
        "source_time",
        _rejected(key, order_by).alias("rejected"),
    )


def _rejected(key: tuple[str, ...], order_by: str | None) -> Expression:
    lacking = [F.when(F.col("row")[k].isNull(), F.lit(k)) for k in key]
    no_key = listed(lacking)
    rule = (
        F.when(F.col("problem").isNotNull(), F.substring_index("problem", ": ", 1))
        .when(F.col("misfits") != "", F.lit("type"))
        .when(no_key != "", F.lit("no-key"))
        .when(F.col("position").isNull(), F.lit("no-order"))
    )
    reason = (
        F.when(F.col("problem").isNotNull(), F.expr("substr(problem, instr(problem, ': ') + 2)"))
        .when(F.col("misfits") != "", F.concat(F.lit("values do not fit their columns: "), F.col("misfits")))
        .when(no_key != "", F.concat(F.lit("no value for the key columns "), no_key))
        .otherwise(F.lit(f"no value in the order column {order_by}"))
    )
    own = {
        "source_table": F.lit(None).cast("string"),
        # the cells of a broken line may be those of other columns
        "row_key": F.when(F.lit(bool(key)) & F.col("problem").isNull() & (no_key == ""), row_key("row", key)),
    }
    rest = [own.get(c, F.col(c)).alias(c) for c in REJECTED[2:]]
    return F.when(rule.isNotNull(), F.struct(rule.alias("rule"), reason.alias("reason"), *rest))


def _measure(both: DataFrame) -> tuple[int, int, datetime | None]:
    newest = F.max(F.unix_micros("source_time")).alias("newest")
    row = both.agg(F.count("*").alias("total"), F.count("rejected").alias("rejected"), newest).first()
    assert row is not None
    return int(row["total"]), int(row["rejected"]), moment(row["newest"]) if row["newest"] is not None else None
