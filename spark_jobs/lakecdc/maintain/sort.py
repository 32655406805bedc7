"""Sorting: where data files overlap in the sort column, they become files of disjoint ranges."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.options import SortDataFilesOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.sort_order import SortOrder, column_order, table_order
from lakecdc.maintain.measure import Partitions, measure
from lakecdc.maintain.overlap import overlap_depth
from lakecdc.maintain.rewrite import RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import apart, average_depth, sort_units
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot

JOB = "sort_data_files"


def sort_data_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Sort the partitions of one table whose files overlap too much.

    Files of a partition spec whose column was dropped are left to compaction, which moves them to the current spec.

    :raises InputError: there is nothing to sort by, or a column does not exist.
    """
    assert isinstance(spec.options, SortDataFilesOptions)
    order = chosen_order(table.refresh(), spec.options)
    report = from_head(table, partial(_sort, table, spec.options, order))
    if not report.metrics.get("commits"):
        return report
    after = {"overlap_depth_after": _depth(measure(table, int(report.snapshot_after or 0), order.fields[0]))}
    return dataclasses.replace(report, metrics=report.metrics | after)


def _sort(table: IcebergTable, options: SortDataFilesOptions, order: SortOrder, start: Snapshot) -> TableReport:
    target = target_bytes(table, options)
    partitions, left = apart(measure(table, start.id, order.fields[0]), specs_by_dropped_columns(table))
    units, counts = sort_units(partitions, options.min_overlap_depth, target, _sorts_by(table, order))
    counts |= {"sorted_by": order.describe(), "files_left": sum(map(len, left.values()))}
    reason = f"no partition's files overlap deeper than {options.min_overlap_depth:g}"
    summary = {names.SORTED_BY: order.describe()}
    return execute(table, RewritePlan(JOB, start, units, order, target, reason, counts, summary), options)


def chosen_order(table: IcebergTable, options: SortDataFilesOptions) -> SortOrder:
    """What to sort by: the option's columns, else the table's sort order, else its identifier fields.

    :raises InputError: there is none of them, or a column does not exist.
    """
    if options.columns:
        return column_order(table, options.columns)
    order = table_order(table)
    if order.fields:
        return order
    if not table.identifier_columns:
        raise InputError(
            "There is nothing to sort by: the table has neither a sort order nor identifier fields.",
            table=table.name,
            hint="Give options.columns, or set one with ALTER TABLE … WRITE ORDERED BY.",
        )
    return column_order(table, table.identifier_columns)


def _sorts_by(table: IcebergTable, order: SortOrder) -> list[int]:
    wanted = order.describe()
    return [s.id for s in table.ancestors() if s.summary.get(names.SORTED_BY) == wanted]


def _depth(partitions: Partitions) -> float:
    ranges = [[f.key_range for f in files if not f.keyless] for files in partitions.values()]
    return average_depth([(overlap_depth(r), sum(k.rows for k in r)) for r in ranges])
