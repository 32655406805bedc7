"""Sort: rewrite data files that overlap in the sort order as files of disjoint ranges."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial

from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import SortDataFilesOptions, check_curve
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.sort_order import (
    SortOrder,
    clustering,
    column_order,
    depth_reached,
    record_sorted,
    sorted_snapshots,
)
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.maintain.cold import cold_rules, explain_cold, plan_warm
from lakecdc.maintain.geometry import average_overlap, geometry
from lakecdc.maintain.measure import measure
from lakecdc.maintain.reports import nothing
from lakecdc.maintain.rewrite import SUMMED, RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import apart, sort_units
from lakecdc.metadata import names
from lakecdc.metadata.file_facts import UNSORTED, Partitions, in_order, warm_files

JOB = "sort_data_files"
# a pass that lowers the overlap by less than a tenth is not worth its writes
_FALLS = 0.9
_OF_THE_FIRST = ("overlap_depth_before", "partitions_chosen", "groups_cut", "files_chosen", "bytes_chosen")
# predicted per pass, to compare with the result
_PREDICTED = ("files_planned", "bytes_planned")


def sort_data_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Sort the partitions of one table whose files overlap too much.

    Files of a partition spec with a dropped column are left to compaction, which moves them to the current spec.

    :raises InputError: a column of the options does not exist.
    """
    options = spec.options_as(SortDataFilesOptions)
    order = _sort_order(table.refresh(), options)
    if not order.fields:
        return nothing(table, UNSORTED, table.head())
    passes = _passes(table, options, order)
    if options.branch == MAIN and not options.dry_run and any(p.metrics.get("commits") for p in passes):
        partitions = measure(table.refresh(), int(passes[-1].snapshot_after or 0), order)
        live = {file.added_by for files in partitions.values() for file in files}
        record_sorted(table, order, sorted_snapshots(table, order) & live, _reached(passes))
    return explain_cold(_merge_reports(passes))


def _sort_order(table: IcebergTable, options: SortDataFilesOptions) -> SortOrder:
    """Return the sort order of the options, completed from the table."""
    if options.columns:
        return column_order(table, options.columns, options.curve or "linear")
    order = clustering(table)
    if not order.fields or options.curve in (None, order.curve):
        return order
    columns = [field.column for field in order.fields]
    if options.curve != "linear":
        check_curve(columns)
    return column_order(table, columns, options.curve or "linear")


def _passes(table: IcebergTable, options: SortDataFilesOptions, order: SortOrder) -> list[TableReport]:
    """Repeat the sort while groups have to be cut, the overlap falls, and there is time."""
    passes: list[TableReport] = []
    rules = cold_rules(table, options)
    end = time.monotonic() + options.max_runtime

    def one_pass(start: Snapshot) -> TableReport:
        left = max(end - time.monotonic(), 0.001) if options.max_runtime else 0.0
        limited = dataclasses.replace(options, max_runtime=left)
        plan = partial(_plan, table, limited, order, bool(passes), start)
        return execute(table, plan_warm(rules, measure(table, start.id, order), plan), limited)

    while True:
        report = from_head(table, one_pass, options.branch)
        passes.append(report)
        if not report.metrics.get("commits"):
            return passes
        measured = rules.mark(measure(table, int(report.snapshot_after or 0), order))
        after = average_overlap({scope: warm_files(files) for scope, files in measured.items()}, order)
        report.metrics["overlap_depth_after"] = after
        falls = after < _FALLS * report.metrics["overlap_depth_before"]
        if report.outcome != "done" or report.reason or not report.metrics["groups_cut"] or not falls:
            return passes


def _reached(passes: Sequence[TableReport]) -> float | None:
    """Return the overlap depth after sorting; None if sorting did not finish."""
    last = passes[-1]
    complete = last.outcome in ("done", "nothing") and not (last.metrics.get("commits") and last.reason)
    return float(last.metrics.get("overlap_depth_after", last.metrics["overlap_depth_before"])) if complete else None


def _merge_reports(passes: Sequence[TableReport]) -> TableReport:
    first, last = passes[0], passes[-1]
    worked = [p for p in passes if p.metrics.get("commits")]
    if not worked:
        return first
    metrics = last.metrics | worked[-1].metrics | {name: first.metrics[name] for name in _OF_THE_FIRST}
    metrics |= {name: sum(p.metrics[name] for p in worked) for name in (*SUMMED, *_PREDICTED)}
    metrics |= {"passes": len(worked), "times_written": round(metrics["bytes_read"] / metrics["bytes_chosen"], 2)}
    report = worked[-1] if last.outcome == "nothing" else last
    return dataclasses.replace(report, snapshot_before=first.snapshot_before, metrics=metrics)


def _plan(
    table: IcebergTable,
    options: SortDataFilesOptions,
    order: SortOrder,
    again: bool,
    start: Snapshot,
    measured: Partitions,
) -> RewritePlan:
    target = target_bytes(table, options, start)
    partitions, left = apart(measured, specs_by_dropped_columns(table))
    units, counts = sort_units(partitions, options, target, sorted_snapshots(table, order), geometry(order))
    counts |= {"sorted_by": order.describe(), "files_left": sum(map(len, left.values()))}
    reason = in_order(options)
    reached = None if again else depth_reached(table, order)
    if units and reached and counts["overlap_depth_before"] <= reached / _FALLS:
        units, reason = [], f"files overlap no deeper than the last sort left them ({reached:g})"
    summary = {names.SORTED_BY: order.describe()}
    return RewritePlan(JOB, start, units, order, target, reason, counts, summary, branch=options.branch)
