"""Recompute statistics for query planners when enough rows have changed to mislead them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from functools import partial

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import ComputeStatisticsOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.definition import current_spec_id, unpartitioned_specs
from lakecdc.iceberg.sort_order import clustering
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.iceberg.table_statistics import (
    column_statistics,
    compute_columns,
    compute_partitions,
    partition_statistics,
)
from lakecdc.maintain.reports import dry_run, ends, nothing, seconds_since
from lakecdc.maintain.rewrite import from_head
from lakecdc.maintain.start_tag import start_tag

JOB = "compute_statistics"
_CHANGES = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")


def compute_statistics(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Compute a table's stale statistics for the head of ``main``.

    :raises InputError: a column of the options does not exist.
    """
    return from_head(table, partial(_compute, table, spec.options_as(ComputeStatisticsOptions)))


def _compute(table: IcebergTable, options: ComputeStatisticsOptions, head: Snapshot) -> TableReport:
    ancestors, columns = list(table.ancestors()), _columns(table, options)
    known = {id for id, statistics in column_statistics(table).items() if set(columns) <= set(statistics)}
    rows = head.rows or 0
    limit = options.min_changed_ratio * rows
    changed = {"columns": changed_rows(ancestors, known) if columns else 0.0}
    if current_spec_id(table) not in unpartitioned_specs(table):
        changed["partitions"] = changed_rows(ancestors, partition_statistics(table))
    stale = [name for name, count in changed.items() if count > limit]
    metrics = {"columns": columns, "stale": stale, "rows": rows}
    if not stale:
        return nothing(table, f"no more than {limit:.0f} rows have changed since", head, **metrics)
    if options.dry_run:
        return dry_run(table, head, **metrics)
    started = time.monotonic()
    with start_tag(table, head, JOB, leased=False):
        if "columns" in stale:
            compute_columns(table, head.id, columns)
        if "partitions" in stale:
            compute_partitions(table, head.id)
    distinct = column_statistics(table).get(head.id, {})
    metrics |= {"distinct_values": distinct, "seconds": seconds_since(started)}
    return TableReport(table.name, "done", **ends(head, head), metrics=metrics)


def changed_rows(ancestors: Iterable[Snapshot], known: Iterable[int]) -> float:
    """Count the rows added or deleted, not rewritten, since the newest known snapshot; infinite if none is known."""
    known_ids, listing = set(known), list(ancestors)
    if not any(s.id in known_ids for s in listing):
        return float("inf")
    since = itertools.takewhile(lambda s: s.id not in known_ids, listing)
    return sum(int(s.summary.get(name, 0)) for s in since if s.operation != "replace" for name in _CHANGES)


def _columns(table: IcebergTable, options: ComputeStatisticsOptions) -> list[str]:
    """Return the columns of the options, or else those of the key and the clustering."""
    unknown = set(options.columns) - set(table.column_names)
    if unknown:
        raise InputError(
            f"The column {min(unknown)!r} does not exist.",
            table=table.name,
            hint=f"Use one of {', '.join(table.column_names)}.",
        )
    if options.columns:
        return list(options.columns)
    laid_out = [field.column for field in clustering(table).fields]
    return list(dict.fromkeys([*table.identifier_columns, *laid_out]))
