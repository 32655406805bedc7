"""Grow buckets: their number follows the table's size, and rows move while ingestion runs."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

from lakecdc.contract.errors import LakecdcError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RebucketOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.live_deletes import foreign_deletes
from lakecdc.iceberg.partition_fields import change_buckets, partition_fields
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.sort_order import clustering
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.measure import measure
from lakecdc.maintain.older_specs import by_spec, count, destination, group_moving_files, one_bucket
from lakecdc.maintain.reports import nothing
from lakecdc.maintain.rewrite import SUMMED, RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import apart
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata.file_facts import Partitions
from lakecdc.runtime import failpoints

log = logging.getLogger(__name__)

JOB = "rebucket"
#: maximum number of plans after conflicts
ATTEMPTS = 5
#: target number of files per bucket
FILES_PER_BUCKET = 4
_OF_THE_FIRST = ("buckets_before", "bucket_bytes_before", "files_of_older_specs")
_NONE = "the table is not partitioned by bucket(n, column)"
_SEVERAL = "the table is partitioned by several buckets, so the one to change is ambiguous"


def rebucket(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Double or halve the number of buckets towards their target size, and move all rows to the new ones.

    Rows that an earlier run or a manual change of the partitioning left in older specs move too. If another commit
    invalidates a group, the job plans again.

    :raises UnsupportedError: another writer adds equality deletes to the table.
    """
    options = spec.options_as(RebucketOptions)
    rounds: list[TableReport] = []
    end = time.monotonic() + options.max_runtime
    while True:
        left = max(end - time.monotonic(), 0.001) if options.max_runtime else 0.0
        try:
            work = partial(_round, table, dataclasses.replace(options, max_runtime=left))
            rounds.append(from_head(table, work))
        except LakecdcError as error:
            if not rounds:
                raise
            # the report must include earlier rounds, which may have moved rows
            rounds.append(TableReport.failure(table.name, error))
        out_of_time = bool(options.max_runtime) and time.monotonic() > end
        if rounds[-1].outcome != "conflict" or len(rounds) == ATTEMPTS or out_of_time:
            return _merge_reports(rounds)
        log.info("%s: planning again: %s", table.name, rounds[-1].reason)


def suitable_buckets(now: int, bytes_: float, options: RebucketOptions, target: int) -> int:
    """Return the suitable number of buckets for a total size in bytes, at most ``target`` bytes per bucket.

    Doubling and halving both stop between half of the target and the target, and start only outside the tolerance.
    """
    buckets = now
    if bytes_ / now > target * options.tolerance:
        while bytes_ / buckets > target and 2 * buckets <= options.max_buckets:
            buckets *= 2
    elif bytes_ / now < target / 2 / options.tolerance:
        while bytes_ / buckets < target / 2 and not buckets % 2 and buckets // 2 >= options.min_buckets:
            buckets //= 2
    return buckets


def _round(table: IcebergTable, options: RebucketOptions, start: Snapshot) -> TableReport:
    fields = partition_fields(table)[current_spec_id(table)]
    bucket = one_bucket(fields)
    if bucket is None or bucket.buckets is None:
        return nothing(table, _SEVERAL if any(field.buckets for field in fields) else _NONE, start)
    order, target = clustering(table), target_bytes(table, options, start)
    measured = measure(table, start.id, order)
    if not measured:
        return nothing(table, "the table has no data files", start)
    partitions, of_dropped = apart(measured, specs_by_dropped_columns(table))
    stored, aim = _bucketed_bytes(table, partitions), options.target_bucket_bytes or FILES_PER_BUCKET * target
    buckets = suitable_buckets(bucket.buckets, stored, options, aim)
    counts = {
        "buckets_before": bucket.buckets,
        "buckets_after": buckets,
        "bucket_bytes_before": round(stored / bucket.buckets),
        "target_bucket_bytes": aim,
        "files_left": count(of_dropped),
    }
    specs = by_spec(table, start, partitions)
    moving, to = specs.movable, destination(table)
    if (buckets != bucket.buckets or specs.fixed) and (reason := specs.why or foreign_deletes(table, start)):
        raise UnsupportedError(
            f"Cannot move rows to other buckets: {reason}.",
            table=table.name,
            hint="Stop the other writer, run rewrite_delete_files, and expire its snapshots.",
        )
    if buckets != bucket.buckets and options.dry_run:
        renewed = dataclasses.replace(bucket, transform=f"bucket[{buckets}]")
        moving, to = partitions, destination(table, tuple(renewed if field == bucket else field for field in fields))
    changes = buckets != bucket.buckets and not options.dry_run
    with start_tag(table, start, JOB) if changes else nullcontext():
        if changes:
            change_buckets(table, current_spec_id(table), bucket, buckets)
            failpoints.reach("rebucket_changed")
            moving, to = apart(partitions, {current_spec_id(table)})[0], destination(table)
        units = group_moving_files(moving, partition_fields(table), to, target, options.max_group_bytes)
        reason = f"{bucket.buckets} buckets have {stored / bucket.buckets:.0f} bytes on average, the target is {aim}"
        counts |= {"files_of_older_specs": count(moving)}
        plan = RewritePlan(JOB, start, units, order, target, reason, counts, partitions_by=to.expressions)
        return execute(table, plan, options)


def _bucketed_bytes(table: IcebergTable, partitions: Partitions) -> float:
    """Sum the bytes of live rows in all buckets, on average per partition of the other fields."""
    buckets = {field.name for fields in partition_fields(table).values() for field in fields if field.buckets}
    others = {
        json.dumps({name: value for name, value in json.loads(partition).items() if name not in buckets})
        for _, partition in partitions
    }
    return sum(file.live_bytes for files in partitions.values() for file in files) / max(len(others), 1)


def _merge_reports(rounds: Sequence[TableReport]) -> TableReport:
    first, last = rounds[0], rounds[-1]
    metrics = {name: value for report in rounds for name, value in report.metrics.items()}
    metrics |= {name: sum(r.metrics.get(name, 0) for r in rounds) for name in SUMMED if name in metrics}
    metrics |= {name: first.metrics[name] for name in _OF_THE_FIRST if name in first.metrics}
    if len(rounds) > 1:
        metrics["conflicts"] = sum(report.outcome == "conflict" for report in rounds)
    outcome = "done" if last.outcome == "nothing" and metrics.get("commits") else last.outcome
    after = next((report.snapshot_after for report in reversed(rounds) if report.snapshot_after), None)
    return dataclasses.replace(
        last, outcome=outcome, snapshot_before=first.snapshot_before, snapshot_after=after, metrics=metrics
    )
