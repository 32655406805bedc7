"""Code shared by database sources: column checks, chunked full loads, task errors."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.contract.feeding import IngestOptions
from lakecdc.contract.fields import nearest
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target, is_own_column
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.explain import as_ours
from lakecdc.ingest.change import Column, Load, ReadShare, Rows, alike
from lakecdc.ingest.engine.log import LogRows
from lakecdc.ingest.engine.packing import rows_of_cells
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.formats.text_columns import JUDGED, MISFITS, Convert, ReadTask, TextColumn, TypeRows
from lakecdc.metadata.positions import Position
from lakecdc.model.columns import arrow_type
from lakecdc.model.positions import log_position

T = TypeVar("T")
_HINT = ". Correct them at the source, or exclude the columns."
_ERROR_LINE = re.compile(r"(psycopg\.|pymysql\.|lakecdc\.)?[\w.]+: \S")


def check_named_columns(target: Target, label: str, key: Sequence[str], names: set[str]) -> None:
    """Raise an :class:`InputError` if a target names a column that its source table lacks, or excludes its key."""
    for place, listed in (("key", key), ("exclude_columns", target.exclude_columns), ("columns", target.columns)):
        for column in listed:
            if column not in names:
                raise InputError(
                    f"{label} has no column {column!r}, which {place} names.",
                    hint=f"Use the source's current names in {place}; if the source renamed the column, rename it "
                    "there as well.",
                )
    left_out = sorted(set(key) & set(target.exclude_columns))
    if left_out:
        raise InputError(f"The key column {left_out[0]!r} is also excluded.")


def target_columns(
    target: Target,
    key: Sequence[str],
    columns: Iterable[tuple[str, str | None, str]],
    unreadable: Mapping[str, tuple[str, str]],
) -> tuple[Column, ...]:
    """Return the target's columns for the source's.

    :param columns: name, Spark SQL type (None without a counterpart) and source type of each, in order.
    :param unreadable: columns that cannot be read, with the reason and a remedy besides excluding them.
    :raises InputError: a column has no type or an unusable name.
    """
    included = [column for column in columns if column[0] not in target.exclude_columns]
    _check_names([name for name, _, _ in included])
    typed = []
    for name, derived, source_type in included:
        kind = _column_type(target, name, derived, source_type)
        if name in unreadable:
            why, remedy = unreadable[name]
            raise InputError(
                f"Column {name!r} {why}.",
                hint=f'Leave it out with "exclude_columns": ["{name}"]{remedy}.',
            )
        typed.append(Column(name, kind, name in key))
    return tuple(typed)


def _check_names(names: Sequence[str]) -> None:
    twice = alike(names)
    for name in names:
        if name in twice:
            raise InputError(
                f"Two columns are named {name!r} apart from case; the catalog cannot tell them apart.",
                hint='Leave one out with "exclude_columns".',
            )
        if is_own_column(name.lower()):
            raise InputError(f"The source has a column {name!r}; lakecdc uses that name itself.")


def _column_type(target: Target, column: str, derived: str | None, source_type: str) -> str:
    if column in target.columns:
        chosen = chosen_type(target, column)
        if arrow_type(chosen) is None:
            raise InputError(
                f"Column {column!r} cannot be of type {chosen}: a database's log has only single values.",
                hint=f'Use "columns": {{"{column}": "string"}}, which keeps their text.',
            )
        return chosen
    if derived is None:
        raise InputError(
            f"Column {column!r} has type {source_type}, which has no counterpart in Iceberg.",
            hint=f'Leave it out with "exclude_columns": ["{column}"], or keep its text with '
            f'"columns": {{"{column}": "string"}} of its target.',
        )
    return derived


class LoadMark(NamedTuple):
    """Position of a full load's rows among the changes.

    :param order: order key of every row, below that of any change.
    :param time: the source's clock when reading began.
    """

    order: str
    time: datetime


def full_load_frame(
    rows: DataFrame, key: Sequence[str], row: Expression, mark: LoadMark, more: Sequence[str] = ()
) -> DataFrame:
    """Return the change frame of a full load, for a struct of the target's columns and ``more`` columns of the rows."""
    members = [F.col("row")[name].alias(name) for name in key]
    # null: only an event that changes the key has an old one
    old_key = F.when(F.lit(False), F.struct(*members))
    return rows.select(row.alias("row"), *more).select(
        F.lit("r").alias("op"),
        F.struct(*members).alias("key"),
        "row",
        F.lit(None).cast("array<string>").alias("open"),
        old_key.alias("old_key"),
        F.lit(mark.order).alias("order"),
        F.lit(mark.time).alias("source_time"),
        *more,
    )


def judged(typed: DataFrame, rows: TypeRows, mark: LoadMark) -> DataFrame:
    """Return the change frame of a full load with the columns ``JUDGED``, which are null for rows that fit."""
    row = F.struct(*[F.col(f"c{i}").alias(c.name) for i, c in enumerate(rows.columns)])
    judgements = (F.map_keys(MISFITS), F.col(MISFITS), F.lit(None).cast("map<string, string>"))
    return full_load_frame(typed.withColumns(dict(zip(JUDGED, judgements, strict=True))), rows.key, row, mark, JUDGED)


def fitting(rows: DataFrame) -> DataFrame:
    """Return the rows of :func:`judged` that fit."""
    return rows.where("misfits IS NULL").drop(*JUDGED)


def all_fitting(rows: DataFrame) -> DataFrame:
    """Return the rows of :func:`judged`; reading them fails at a row that does not fit."""
    names = F.array_join("misfits", ", ")
    what = F.concat(F.lit("Values of the source do not fit their columns: "), names, F.lit(_HINT))
    return rows.where(F.when(F.col("misfits").isNotNull(), F.raise_error(what)).otherwise(F.lit(True))).drop(*JUDGED)


def plan_load(
    spark: SparkSession, rows: TypeRows, mark: LoadMark, read: ReadShare, by_spark: ReadShare, tasks: int
) -> Load:
    """Return a full load for tasks that write it themselves, and for Spark.

    :param rows: converts its rows.
    :param read: reads them in ``tasks``, see ``Load``; ``by_spark`` reads the same for Spark.
    """
    left_out = spark.sparkContext.accumulator(0)
    typed = run_tasks(spark.range(0, tasks, 1, tasks), ReadTask(by_spark, left_out), rows.schema)
    changes = judged(typed, rows, mark)

    def unpacked(cells: DataFrame) -> DataFrame:
        return judged(run_tasks(cells, rows_of_cells, rows.schema), rows, mark)

    return Load(read, tasks, mark.order, mark.time, changes, unpacked, left_out)


def load_rows(load: Load) -> LogRows:
    """Return the rows of a full load whose values are checked while it is written."""
    return LogRows(Rows(fitting(load.judged), load=load))


def persist_load(frame: DataFrame, rows: str = "count(1)", *more: Expression) -> tuple[DataFrame, Row]:
    """Read rows of a full load once, and keep them on the executors' disks.

    :param frame: has the column ``misfits``.
    :param rows: aggregate of the number of rows, in SQL; ``more`` are further aggregates.
    :return: the rows and their facts, with ``rows`` and ``misfits``.
    :raises LakecdcError: the reading fails.
    """
    persisted = frame.persist(StorageLevel.DISK_ONLY)
    try:
        facts = persisted.agg(F.expr(rows).alias("rows"), F.count("misfits").alias("misfits"), *more).first()
    except PySparkException as error:
        persisted.unpersist()
        raise (as_ours(error) or SourceUnavailableError(f"A full load failed: {cause(error)}.")) from error
    assert facts is not None
    return persisted, facts


def split_misfits(rows: DataFrame, facts: Row) -> LogRows:
    """Return the rows of :func:`judged` that fit and those that do not, with the facts of :func:`persist_load`."""
    misfits = rows.where("misfits IS NOT NULL") if facts["misfits"] else None
    return LogRows(Rows(fitting(rows)), misfits, facts["rows"])


def defaults(columns: Iterable[TextColumn], texts: Mapping[str, str | None], convert: Convert) -> dict[str, Any]:
    """Convert default values of columns to Python; raise an :class:`InputError` if one does not fit its column."""
    import pyarrow as pa

    values_by_column = {}
    for one in columns:
        values, misfits = convert(pa.array([texts[one.name]], pa.string()), one.base, one.type)
        if misfits:
            raise InputError(
                f"Column {one.name!r} of type {one.type} cannot take its default at the source.",
                hint=f'Change the default there, or leave the column out with "exclude_columns": ["{one.name}"].',
            )
        values_by_column[one.name] = values[0].as_py()
    return values_by_column


def check_driver(requirement: str) -> None:
    """Raise an :class:`InputError` if the driver's Python package, such as ``psycopg[binary]``, is missing."""
    package = requirement.partition("[")[0]
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"The Python package {package} is missing on the driver.",
            hint=f'Install "{requirement}" where driver and executors run, or ship it in an environment archive.',
        )


def check_identity(table: str, position: Position, source: str, identity: str, place: str) -> None:
    """Raise an :class:`InputError` if a position belongs to another source; ``place`` is ``host:port`` for messages."""
    if position.source != source:
        raise InputError(f"The table was fed from a source of type {position.source}.", table=table)
    if position.identity != identity:
        raise InputError(
            f"Its position {log_position(position)} belongs to the log of {position.identity}, but the server at "
            f"{place} is {identity}: another server, a restored one, or a standby that was promoted. Positions mean "
            "nothing in another server's log.",
            table=table,
            hint='Correct the address in source, or run once with "reload": ["*"] in options to reload the tables.',
        )


def no_such_table(what: str, label: str, tables: Iterable[str], remedy: str) -> InputError:
    """Return the error ``what`` for a source table that is missing, with the nearest name among ``tables``."""
    near = nearest(label, tables)
    return InputError(what, hint=f"{near} {remedy}" if near else remedy)


def fingerprint(known: object) -> str:
    """Return a short text that changes with what a load depends on."""
    return hashlib.sha1(repr(known).encode(), usedforsecurity=False).hexdigest()[:16]


def deal(chunks: Sequence[T], parallelism: int) -> tuple[tuple[T, ...], ...]:
    """Deal chunks out to at most ``parallelism`` tasks."""
    count = max(1, min(parallelism, len(chunks)))
    return tuple(tuple(chunks[i::count]) for i in range(count))


def reloads(spec: JobSpec, target: Target) -> bool:
    """Whether a table's full load replaces rows, and so must be one commit."""
    return isinstance(spec.options, IngestOptions) and spec.options.reloads(target.table)


def positions_to_continue(spec: JobSpec, positions: Mapping[str, Position]) -> dict[str, Position]:
    """Return the positions that a run continues from; a reloaded table has none."""
    return {t.table: positions[t.table] for t in spec.targets if t.table in positions and not reloads(spec, t)}


def cause(error: Exception) -> str:
    """Return the line of a failed task's trace that names the error."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line for line in lines if _ERROR_LINE.match(line) and not line.startswith("org.apache.spark")]
    return (causes or lines)[0].rstrip(".")


def full_load_needed(what: str, table: str) -> InputError:
    """Return the error of a table that cannot continue from its position; ``what`` is the reason."""
    return InputError(
        f"{what}: a full load is needed.",
        table=table,
        hint=f'Run once with "reload": ["{table}"] in options: the table is unchanged until the load is complete.',
    )
