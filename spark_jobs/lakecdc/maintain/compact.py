"""Compact: merge small files to the target size, and remove deleted rows from files with many of them."""

from __future__ import annotations

import time
from functools import partial

from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import CompactDataFilesOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.bloom_columns import bloom_filter_columns, without_bloom_filters
from lakecdc.iceberg.definition import current_spec_id, unpartitioned_specs
from lakecdc.iceberg.partition_fields import partition_fields
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.sort_order import SortOrder, clustering, sorted_snapshots
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.cold import cold_rules, explain_cold, plan_warm
from lakecdc.maintain.geometry import geometry
from lakecdc.maintain.measure import measure
from lakecdc.maintain.older_specs import by_spec, count, destination, group_moving_files, without
from lakecdc.maintain.reports import joined
from lakecdc.maintain.rewrite import RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import apart, compaction_units, moving_units, sequences, still_written
from lakecdc.metadata import names
from lakecdc.metadata.compaction_reasons import no_reason_to_compact
from lakecdc.metadata.file_facts import Partitions, cold_files, warm_files
from lakecdc.metadata.file_sizes import written_file_bytes

JOB = "compact_data_files"


def compact_data_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Compact the files of one table where this is worthwhile, keeping its clustering.

    Files of a partition spec with a dropped column move to the current spec, all files of a spec in one commit;
    optionally files of other older specs move too.
    """
    options = spec.options_as(CompactDataFilesOptions)
    return explain_cold(from_head(table, partial(_compact, table, options), options.branch))


def _compact(table: IcebergTable, options: CompactDataFilesOptions, start: Snapshot) -> TableReport:
    order = clustering(table)
    plan = partial(_plan, table, options, order, start)
    return execute(table, plan_warm(cold_rules(table, options), measure(table, start.id, order), plan), options)


def _plan(
    table: IcebergTable, options: CompactDataFilesOptions, order: SortOrder, start: Snapshot, measured: Partitions
) -> RewritePlan:
    target = target_bytes(table, options, start)
    partitions, of_dropped = apart(measured, specs_by_dropped_columns(table))
    specs = by_spec(table, start, partitions)
    written = _still_written(table, specs.current | specs.movable, options)
    quiet, older = without(specs.current, written), without(specs.movable, written)
    large = options.large_file_ratio * (options.target_file_size_bytes or written_file_bytes(table.properties))
    chosen = quiet if options.older_specs else quiet | older
    unfiltered: set[str] = set()
    if options.add_bloom_filters:
        locations = {file.location for files in chosen.values() for file in files}
        unfiltered = without_bloom_filters(table, bloom_filter_columns(table), locations)
    units, counts = compaction_units(chosen, options, target, large, geometry(order), unfiltered)
    if units and order.ascends:
        units = sequences(units, sorted_snapshots(table, order, compacted=True), current_spec_id(table))
    counts |= {"partitions_being_written": len(written)} if options.quiet_seconds else {}
    # Iceberg can only remove all files of such a spec at once
    of_dropped, with_cold = apart(of_dropped, {spec for (spec, _), files in of_dropped.items() if cold_files(files)})
    moving, left = moving_units(of_dropped, options, target)
    counts |= {
        "files_of_dropped_columns": count(of_dropped) + count(with_cold),
        "files_of_older_specs": count(specs.movable) + count(specs.fixed),
        "files_left": left + count(with_cold) + count(specs.fixed),
    }
    to = destination(table)
    moved = {scope: files for scope, each in older.items() if (files := warm_files(each))}
    if options.older_specs:
        moving += group_moving_files(moved, partition_fields(table), to, target, options.max_group_bytes)
    stay = "files of partition specs whose column was dropped stay"
    too_large = f"{left} {stay}: max_group_bytes is less than all files of a spec have" if left else None
    beside_cold = f"{count(with_cold)} {stay}: some files of the spec are cold" if with_cold else None
    summary = {names.ROWS_SORTED_BY: order.describe()} if order.fields else {}
    return RewritePlan(
        JOB,
        start,
        [*moving, *units],
        order,
        target,
        no_reason_to_compact(options, target, large),
        counts,
        summary,
        left=joined(too_large, beside_cold, specs.remark) or None,
        partitions_by=to.expressions if options.older_specs and moved else (),
        branch=options.branch,
    )


def _still_written(
    table: IcebergTable, partitions: Partitions, options: CompactDataFilesOptions
) -> set[tuple[int, str]]:
    if not options.quiet_seconds:
        return set()
    quiet = time.time() * 1000 - options.quiet_seconds * 1000
    since = next((s.sequence_number for s in table.ancestors(options.branch) if s.timestamp_ms <= quiet), 0)
    return still_written({k: f for k, f in partitions.items() if k[0] not in unpartitioned_specs(table)}, since)
