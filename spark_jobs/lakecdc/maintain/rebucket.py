"""Buckets that grow: their number follows the size of the table, and rows move beside running ingestion."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import LakecdcError, UnsupportedError
from lakecdc.contract.options import RebucketOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.clustering import clustering
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.delete_writers import foreign_deletes
from lakecdc.iceberg.partition_fields import change_buckets, partition_fields
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.maintain.measure import measure
from lakecdc.maintain.moving import one_bucket
from lakecdc.maintain.older_specs import by_spec, count, destination, units_of
from lakecdc.maintain.rewrite import SUMMED, RewritePlan, execute, from_head, nothing, target_bytes
from lakecdc.maintain.selection import apart
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata.file_facts import Partitions
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot

log = logging.getLogger(__name__)

JOB = "rebucket"
#: times a conflict is answered with a new plan before the job gives up
ATTEMPTS = 5
#: files of the target size that a bucket is to hold
FILES_PER_BUCKET = 4
_OF_THE_FIRST = ("buckets_before", "bucket_bytes_before", "files_of_older_specs")
_NONE = "the table is not partitioned by bucket(n, column)"
_SEVERAL = "the table is partitioned by several buckets, and nothing tells which of them should change"


def rebucket(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Double or halve the number of buckets until they are near their target size, and move all rows to the new ones.

    Rows that an earlier run, or a change of the partitions by hand, has left in older specs are moved as well. A group
    that another commit makes void is planned anew.

    :raises UnsupportedError: somebody else writes equality deletes to the table.
    """
    options = spec.options
    assert isinstance(options, RebucketOptions)
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
            # the rounds before may have moved rows, and the report has to say so
            rounds.append(TableReport.failure(table.name, error))
        out_of_time = bool(options.max_runtime) and time.monotonic() > end
        if rounds[-1].outcome != "conflict" or len(rounds) == ATTEMPTS or out_of_time:
            return _together(rounds)
        log.info("%s: planned anew: %s", table.name, rounds[-1].reason)


def wanted_buckets(now: int, bytes_: float, options: RebucketOptions, target: int) -> int:
    """The number of buckets that suits what they hold.

    Doubling ends between half of the target and the target, halving does so too, and both begin outside of that.

    :param now: how many there are.
    :param bytes_: what all of them hold.
    :param target: bytes that each is to hold at most.
    """
    found = now
    if bytes_ / now > target * options.tolerance:
        while bytes_ / found > target and 2 * found <= options.max_buckets:
            found *= 2
    elif bytes_ / now < target / 2 / options.tolerance:
        while bytes_ / found < target / 2 and not found % 2 and found // 2 >= options.min_buckets:
            found //= 2
    return found


def _round(table: IcebergTable, options: RebucketOptions, start: Snapshot) -> TableReport:
    """Plan from a snapshot and carry the plan out."""
    fields = partition_fields(table)[current_spec_id(table)]
    bucket = one_bucket(fields)
    if bucket is None or bucket.buckets is None:
        return nothing(table, _SEVERAL if any(field.buckets for field in fields) else _NONE, start)
    order, target = clustering(table), target_bytes(table, options, start)
    measured = measure(table, start.id, order)
    if not measured:
        return nothing(table, "the table has no data files", start)
    partitions, of_dropped = apart(measured, specs_by_dropped_columns(table))
    held, aim = _held(table, partitions), options.target_bucket_bytes or FILES_PER_BUCKET * target
    wanted = wanted_buckets(bucket.buckets, held, options, aim)
    counts = {
        "buckets_before": bucket.buckets,
        "buckets_after": wanted,
        "bucket_bytes_before": round(held / bucket.buckets),
        "target_bucket_bytes": aim,
        "files_left": count(of_dropped),
    }
    found = by_spec(table, start, partitions)
    moving, to = found.movable, destination(table)
    if wanted != bucket.buckets or found.kept:
        _refuse_others(table, found.why or foreign_deletes(table, start))
    if wanted != bucket.buckets and options.dry_run:
        renewed = dataclasses.replace(bucket, transform=f"bucket[{wanted}]")
        moving, to = partitions, destination(table, tuple(renewed if field == bucket else field for field in fields))
    changes = wanted != bucket.buckets and not options.dry_run
    with start_tag(table, start, JOB) if changes else nullcontext():
        if changes:
            change_buckets(table, current_spec_id(table), bucket, wanted)
            failpoints.reach("rebucket_changed")
            moving, to = apart(partitions, {current_spec_id(table)})[0], destination(table)
        units = units_of(table, moving, to, target, options.max_group_bytes)
        reason = f"{bucket.buckets} buckets hold {held / bucket.buckets:.0f} bytes on average, and {aim} are aimed at"
        counts |= {"files_of_older_specs": count(moving)}
        plan = RewritePlan(JOB, start, units, order, target, reason, counts, partitions_by=to.expressions)
        return execute(table, plan, options)


def _held(table: IcebergTable, partitions: Partitions) -> float:
    """Bytes of live rows in all buckets, those of one partition of the other fields on average."""
    buckets = {field.name for fields in partition_fields(table).values() for field in fields if field.buckets}
    others = {
        json.dumps({name: value for name, value in json.loads(partition).items() if name not in buckets})
        for _, partition in partitions
    }
    return sum(file.live_bytes for files in partitions.values() for file in files) / max(len(others), 1)


def _refuse_others(table: IcebergTable, found: str | None) -> None:
    if found:
        raise UnsupportedError(
            f"Rows cannot move to other buckets: {found}.",
            table=table.name,
            hint="Stop the other writer, run rewrite_delete_files, and expire the snapshots that it has made.",
        )


def _together(rounds: Sequence[TableReport]) -> TableReport:
    """One report of several rounds."""
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
