"""Read what has changed in a table between two snapshots, as rows for PySpark jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.difference import differences
from lakecdc.iceberg.refs import named_snapshot
from lakecdc.iceberg.scan import read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.key_search.bounded import bounded_tasks
from lakecdc.metadata.expiry import iso
from lakecdc.sql import exact_value, is_exact, quoted_column

#: as in Iceberg's changelog: insert, update_before, update_after or delete
CHANGE_TYPE = "_change_type"
_COUNT = "_lakecdc_count"


def read(
    spark: SparkSession,
    table: str,
    *,
    since: str | int | None,
    until: str | int | None = None,
    key: Sequence[str] | None = None,
) -> DataFrame:
    """Read the net changes of a table between two snapshots, with any kind of delete files.

    A net change is a row that only one of the snapshots has. If ``until`` is older than ``since``, as after a rollback,
    the changes lead back. Files with equal deletes in both are not read; the result is checkpointed.

    :param table: catalog, namespace and name, such as ``lake.shop.orders``.
    :param since: snapshot id, tag, branch, or ISO-8601 time, whose rows are not returned; None returns all as inserts.
    :param until: the same; default: the newest snapshot.
    :param key: columns that identify a row; default: the table's identifier fields. Rows with the same key in both
        snapshots become ``update_before`` and ``update_after``; without a key there is only ``insert`` and ``delete``.
    :return: the table's current columns, and ``_change_type``, in no order.
    :raises InputError: the table, a snapshot or a column does not exist, or a snapshot has expired.
    """
    catalog, _, name = table.partition(".")
    source = IcebergTable(spark, catalog, name).refresh()
    first = None if since is None else bound(source, str(since))
    with between(source, first, bound(source, MAIN if until is None else str(until)), key) as rows:
        # checkpointed, because the scan tasks can only be read while they are staged
        return rows.localCheckpoint()


@contextmanager
def between(
    table: IcebergTable, since: Snapshot | None, until: Snapshot, key: Sequence[str] | None = None
) -> Iterator[DataFrame]:
    """Yield the changes of :func:`read`, lazily; valid inside the context."""
    columns, keys = table.column_names, list(table.identifier_columns if key is None else key)
    if missing := set(keys) - set(columns):
        raise InputError(f"The key columns {sorted(missing)} are not in the table.", table=table.name)
    if reserved := {CHANGE_TYPE, _COUNT} & set(columns):
        raise InputError(f"The column name {min(reserved)!r} is reserved.", table=table.name, hint="Rename it.")
    with ExitStack() as staged:
        if since is None:
            rows = _signed_rows(table, None, until, staged)
            yield rows.selectExpr(*map(quoted_column, columns), f"'insert' AS {CHANGE_TYPE}")
        else:
            yield _named_changes(_net(_signed_rows(table, since, until, staged), columns), columns, keys)


def bound(table: IcebergTable, name: str) -> Snapshot:
    """Return the snapshot that ``since`` or ``until`` names; an error names the oldest existing one."""
    try:
        return named_snapshot(table, name)
    except InputError as error:
        known = list(table.ancestors())
        if not known:
            raise
        oldest = f"The oldest snapshot is {known[-1].id} of {iso(known[-1].timestamp_ms)}."
        raise InputError(error.message, table=table.name, hint=f"{oldest} {error.hint}") from error


def _signed_rows(table: IcebergTable, since: Snapshot | None, until: Snapshot, staged: ExitStack) -> DataFrame:
    """Return rows that may be in only one snapshot: 1 for each added, -1 for each removed."""
    columns = table.column_names

    def rows(tasks: Any, count: int, deleted: bool) -> list[DataFrame]:
        if tasks.isEmpty():
            return []
        bounded = staged.enter_context(bounded_tasks(table, tasks))
        given = read_staged(table, staged.enter_context(staged_tasks(table, bounded)))
        # Iceberg's reader omits deleted rows unless _deleted is used
        chosen = given.where("_deleted") if deleted else given
        return [chosen.select(*map(_column, columns), F.lit(count).alias(_COUNT))]

    parts = [
        part
        for files in differences(table, since, until)
        for part in (
            *rows(files.removed, -1, deleted=False),
            *rows(files.added, 1, deleted=False),
            # in files of both snapshots only deleted rows matter: rows deleted in both cancel out
            *rows(files.after, -1, deleted=True),
            *rows(files.before, 1, deleted=True),
        )
    ]
    if not parts:
        return table.read(where="false").select(*map(_column, columns), F.lit(0).alias(_COUNT))
    return reduce(lambda left, right: left.unionAll(right), parts)


def _net(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sum up equal rows, and drop those that cancel out."""
    kinds = [rows.schema[c].dataType for c in columns]
    inexact = [c for c, kind in zip(columns, kinds, strict=True) if not is_exact(kind)]
    by = [exact_value(_column(c), kind).alias(f"_{n}") for n, (c, kind) in enumerate(zip(columns, kinds, strict=True))]
    # a group has one value in each column that is grouped by an exact form
    first = (F.first(_column(c)).alias(f"first_{c}") for c in inexact)
    grouped = rows.groupBy(*by).agg(F.sum(_COUNT).alias(_COUNT), *first)
    values = [_column(f"first_{c}" if c in inexact else f"_{n}").alias(c) for n, c in enumerate(columns)]
    return grouped.where(f"{_COUNT} <> 0").select(*values, _COUNT)


def _named_changes(net: DataFrame, columns: Sequence[str], key: Sequence[str]) -> DataFrame:
    """Repeat each row as often as it was gained or lost, with the name of the change."""
    gained = F.col(_COUNT) > 0
    change = F.when(gained, "insert").otherwise("delete")
    if key:
        of_key = Window.partitionBy(*map(_column, key))
        both = F.max(_COUNT).over(of_key) * F.min(_COUNT).over(of_key) < 0
        change = F.when(both, F.when(gained, "update_after").otherwise("update_before")).otherwise(change)
    times = F.explode(F.array_repeat(F.lit(1), F.abs(_COUNT).cast("int"))).alias(_COUNT)
    named = net.select(*map(_column, columns), change.alias(CHANGE_TYPE), _COUNT)
    return named.select(*map(_column, columns), CHANGE_TYPE, times).drop(_COUNT)


def _column(name: str) -> Column:
    return F.col(quoted_column(name))
