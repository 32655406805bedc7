"""Add the table's numbers before and after a job, and the job's cost, to every report.

No data file is opened. Counts come from snapshot summaries, and the rest from manifests, which Spark tasks read only if
the job committed something or no worker can measure the table.
"""

from __future__ import annotations

import bisect
import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.history import read_history
from lakecdc.iceberg.manifests import manifests
from lakecdc.iceberg.partition_fields import Fields, partition_fields
from lakecdc.iceberg.sort_order import SortOrder, clustering, column_order
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.geometry import average_overlap
from lakecdc.maintain.measure import live_files
from lakecdc.metadata import health, names
from lakecdc.metadata.file_facts import FileFacts, LiveFile, Partitions, average_depth, by_partition
from lakecdc.metadata.file_sizes import target_file_bytes
from lakecdc.metadata.last_write import describe_writes
from lakecdc.metadata.overlap import overlap_depth
from lakecdc.metadata.totals import from_summary

log = logging.getLogger(__name__)

#: maximum number of live files for which manifests are read just for numbers
MOST_FILES = 10_000
# fields that describe the table, not one of its states
_NO_STATE = ("target_file_bytes", "snapshots")
# cached by table and snapshot, because several steps may leave a table unchanged
_measured: dict[tuple[str, int], health.TableHealth] = {}


def with_numbers(table: IcebergTable, report: TableReport, job: str, core_seconds: float) -> TableReport:
    """Add the numbers of the table before and after a job to its report; the job's own metrics stay.

    If the head did not change, both come from its snapshot's summary. ``core_seconds`` is the time of the job's tasks.
    """
    numbers: dict[str, Any] = {"core_seconds": round(core_seconds, 3)}
    try:
        numbers |= _of_report(table.refresh(), report, job)
    except Exception:
        # the job succeeded: its report matters more than these numbers
        log.warning("%s: cannot measure the numbers before and after", table.name, exc_info=True)
    return replace(report, metrics=report.metrics | {n: v for n, v in numbers.items() if n not in report.metrics})


def _of_report(table: IcebergTable, report: TableReport, job: str) -> dict[str, Any]:
    before, after = (table.snapshot(int(id)) if id else None for id in (report.snapshot_before, report.snapshot_after))
    states = {moment: snapshot for moment, snapshot in (("before", before), ("after", after)) if snapshot}
    live = max((_file_count(snapshot.summary) for snapshot in states.values()), default=0)
    if before != after and live <= MOST_FILES:
        numbers = states_of(table, list(states.values()))
    else:
        numbers = [from_summary(snapshot.summary).numbers() for snapshot in states.values()]
    metrics = {f"{name}_{moment}": n for moment, each in zip(states, numbers, strict=True) for name, n in each.items()}
    if live > MOST_FILES and before != after:
        metrics["numbers_left_out"] = f"{live} live files are more than {MOST_FILES}"
    if after and before != after:
        metrics["bytes_written"] = _written(table, before, after, job)
    if after and _file_count(after.summary) > health.MOST_FILES_OF_A_WORKER and after == table.head():
        metrics["health"] = _health(table, after)
    return metrics


def _health(table: IcebergTable, head: Snapshot) -> dict[str, Any]:
    """Measure the health of a table's head that has too many files for a worker."""
    if (table.uuid, head.id) not in _measured:
        order = clustering(table)
        (files,) = live_files(table, [head.id], order.fields)
        _measured[table.uuid, head.id] = _table_health(table, head, files, order)
    past = read_history(table)
    measured = replace(_measured[table.uuid, head.id], snapshots=len(past.snapshots))
    return {**measured.facts(), **describe_writes(past.ancestors(), past.properties, datetime.now(UTC))}


def states_of(table: IcebergTable, snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    order, key, states = clustering(table), table.identifier_columns, []
    of_key = column_order(table, key).fields if key else ()
    all_files = live_files(table, [snapshot.id for snapshot in snapshots], [*order.fields, *of_key])
    for snapshot, files in zip(snapshots, all_files, strict=True):
        measured = _table_health(table, snapshot, files, order)
        known = {name: n for name, n in asdict(measured).items() if name not in _NO_STATE and n is not None}
        numbers = {**from_summary(snapshot.summary).numbers(), **known, "score": measured.score}
        if of_key:
            keyed, ids = by_partition(files, slice(len(order.fields), None)), map(table.field_id, key)
            numbers["lookup_files"] = lookup_files(keyed, partition_fields(table), ids)
        states.append(numbers)
    return states


def _table_health(
    table: IcebergTable, snapshot: Snapshot, files: Sequence[LiveFile], order: SortOrder
) -> health.TableHealth:
    """Measure the health of a snapshot, ignoring the table's other snapshots."""
    return health.measure_health(
        files,
        target_file_bytes=target_file_bytes(table.properties, from_summary(snapshot.summary).bytes),
        snapshots=0,
        manifests=[manifest.bytes for manifest in manifests(table, snapshot.id)],
        overlap_depth=average_overlap(by_partition(files, slice(len(order.fields))), order) if order.fields else None,
    )


def lookup_files(partitions: Partitions, specs: Mapping[int, Fields], key: Iterable[int]) -> float:
    """Return the average number of data files that a key look-up opens, by partitions and bounds.

    A partition field derived from the key prunes to one value; with any other field, or files of several specs, the
    look-up has to check all files.

    :param partitions: facts of the data files, with bounds of the key.
    :param key: field ids of its columns.
    """
    ids, one_spec = set(key), len({spec_id for spec_id, _ in partitions}) == 1
    groups: dict[str, list[FileFacts]] = {}
    for (spec_id, partition), files in partitions.items():
        leading = {field.name for field in specs[spec_id] if field.source_id in ids} if one_spec else set()
        values = {name: value for name, value in json.loads(partition).items() if name in leading}
        groups.setdefault(json.dumps(values, sort_keys=True), []).extend(files)
    return average_depth([(_opened(files), sum(f.rows for f in files)) for files in groups.values()]) if groups else 0.0


def _opened(files: Sequence[FileFacts]) -> float:
    """Return the average number of files that may have a row's key."""
    boxes = [f.box for f in files]
    numeric = all(len(box) == 1 and box[0].known and _number(box[0].upper) is not None for box in boxes)
    if not numeric:
        return overlap_depth([f.key_range for f in files])
    return covering([(_number(box[0].lower), _number(box[0].upper), box[0].rows) for box in boxes])


def _number(end: Any) -> Any:
    """Return the numeric end of a range; None if it is not a number."""
    return end[1] if isinstance(end[-1], int | float | Decimal) and len(end) > 1 else None


def covering(ranges: Sequence[tuple[Any, Any, int]]) -> float:
    """Return the average number of numeric ranges (low, high, rows) around a row, with rows spread evenly.

    Unlike :func:`overlap_depth` this uses distances: with files in random order, which begin and end close together,
    almost every look-up opens all.
    """
    lows, highs = sorted(low for low, _, _ in ranges), sorted(high for _, high, _ in ranges)
    ends = sorted({*lows, *highs})
    depths = [bisect.bisect_right(lows, end) - bisect.bisect_right(highs, end) for end in ends]
    pieces = (depth * (behind - end) for depth, end, behind in zip(depths, ends, ends[1:], strict=False))
    areas = dict(zip(ends, itertools.accumulate(pieces, initial=0), strict=True))
    total = 0.0
    for low, high, rows in ranges:
        at = bisect.bisect_right(lows, low) - bisect.bisect_left(highs, low)
        total += rows * (float((areas[high] - areas[low]) / (high - low)) if high > low else at)
    return total / max(sum(rows for _, _, rows in ranges), 1)


def _file_count(summary: Mapping[str, str]) -> int:
    totals = from_summary(summary)
    return totals.data_files + totals.delete_files


def _written(table: IcebergTable, before: Snapshot | None, after: Snapshot, job: str) -> int:
    """Sum the bytes of files that a job added between two snapshots, from the summaries of its commits."""
    total, snapshot = 0, after
    while before is None or snapshot.id != before.id:
        if snapshot.summary.get(names.JOB) == job:
            total += int(snapshot.summary.get("added-files-size", 0))
        parent = table.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
        if parent is None:
            break
        snapshot = parent
    return total
