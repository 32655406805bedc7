"""What a table was before a job and is after it, and what the job took: the numbers that every report has.

No file of rows is opened: counts are from snapshot summaries, the rest is from manifests, which Spark's tasks read, and
only where the job has committed something, or where nobody else measures the table.
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
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.clustering import clustering
from lakecdc.iceberg.history import read_history
from lakecdc.iceberg.manifests import manifests
from lakecdc.iceberg.partition_fields import Fields, partition_fields
from lakecdc.iceberg.sort_order import column_order
from lakecdc.iceberg.table import facts_of
from lakecdc.maintain.geometry import geometry
from lakecdc.maintain.measure import live_files
from lakecdc.metadata import health, names
from lakecdc.metadata.file_facts import FileFacts, Partitions, by_partition
from lakecdc.metadata.file_sizes import target_file_bytes
from lakecdc.metadata.last_write import standing
from lakecdc.metadata.order import average_depth, keyed_rows
from lakecdc.metadata.overlap import overlap_depth
from lakecdc.metadata.totals import from_summary

if TYPE_CHECKING:
    from lakecdc.contract.report import TableReport
    from lakecdc.iceberg.sort_order import SortField, SortOrder
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.metadata.live_files import LiveFile

log = logging.getLogger(__name__)

#: live files of a snapshot above which its manifests are not read for numbers alone
MOST_FILES = 10_000
# what describes the table, and not a state of it
_NO_STATE = ("target_file_bytes", "snapshots")
# what an application has measured by table and snapshot, since several of its steps may leave a table as it is
_measured: dict[tuple[str, int], health.TableHealth] = {}


def with_numbers(table: IcebergTable, report: TableReport, job: str, core_seconds: float) -> TableReport:
    """A job's report with the numbers of the table before and after; what the job itself has told stays.

    Where the head is what it was, both are what its snapshot's summary tells.

    :param job: its name.
    :param core_seconds: what the job's tasks took.
    """
    numbers: dict[str, Any] = {"core_seconds": round(core_seconds, 3)}
    try:
        numbers |= _of_report(table.refresh(), report, job)
    except Exception:
        # what the job has done is done, and its report is worth more than these
        log.warning("%s: the numbers before and after could not be measured", table.name, exc_info=True)
    return replace(report, metrics=report.metrics | {n: v for n, v in numbers.items() if n not in report.metrics})


def _of_report(table: IcebergTable, report: TableReport, job: str) -> dict[str, Any]:
    before, after = (table.snapshot(int(id)) if id else None for id in (report.snapshot_before, report.snapshot_after))
    states = [("before", before), ("after", after)]
    live = max((_file_count(snapshot.summary) for _, snapshot in states if snapshot), default=0)
    is_whole = before != after and live <= MOST_FILES
    told = [(moment, snapshot) for moment, snapshot in states if snapshot]
    snapshots = [snapshot for _, snapshot in told]
    numbers = (
        states_of(table, snapshots)
        if is_whole and told
        else [from_summary(snapshot.summary).numbers() for snapshot in snapshots]
    )
    found = {f"{name}_{moment}": n for (moment, _), each in zip(told, numbers, strict=True) for name, n in each.items()}
    if live > MOST_FILES and before != after:
        found["numbers_left_out"] = f"{live} live files are more than {MOST_FILES}"
    if after and before != after:
        found["bytes_written"] = _written(table, before, after, job)
    if after and _file_count(after.summary) > health.MOST_FILES_OF_A_WORKER and after == table.head():
        found["health"] = _health(table, after)
    return found


def _health(table: IcebergTable, head: Snapshot) -> dict[str, Any]:
    """What a worker would have found at the table's head, if it had fewer files."""
    if (table.uuid, head.id) not in _measured:
        order = clustering(table)
        (files,) = live_files(table, [head.id], order.fields)
        _measured[table.uuid, head.id] = _table_health(table, head, files, order)
    past = read_history(table)
    found = replace(_measured[table.uuid, head.id], snapshots=len(past.snapshots))
    return {**found.facts(), **standing(map(facts_of, past.ancestors()), past.properties, datetime.now(UTC))}


def states_of(table: IcebergTable, snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """Counts of snapshots, and how their files lie, from their manifests."""
    order, key = clustering(table), table.identifier_columns
    of_key = column_order(table, key).fields if key else ()
    found = live_files(table, [snapshot.id for snapshot in snapshots], [*order.fields, *of_key])
    return [_state(table, *each, order, of_key) for each in zip(snapshots, found, strict=True)]


def _state(
    table: IcebergTable, snapshot: Snapshot, files: Sequence[LiveFile], order: SortOrder, of_key: Sequence[SortField]
) -> dict[str, Any]:
    found = _table_health(table, snapshot, files, order)
    totals = from_summary(snapshot.summary).numbers()
    numbers = {**totals, **{name: n for name, n in asdict(found).items() if name not in _NO_STATE and n is not None}}
    numbers["score"] = found.score
    if of_key:
        ids = {table.field_id(column) for column in table.identifier_columns}
        keyed = by_partition(files, slice(len(order.fields), None))
        numbers["lookup_files"] = lookup_files(keyed, partition_fields(table), ids)
    return numbers


def _table_health(
    table: IcebergTable, snapshot: Snapshot, files: Sequence[LiveFile], order: SortOrder
) -> health.TableHealth:
    """Health of a snapshot, the table's other snapshots not counted."""
    return health.measured(
        files,
        target_file_bytes=target_file_bytes(table.properties, from_summary(snapshot.summary).bytes),
        snapshots=0,
        manifests=[manifest.bytes for manifest in manifests(table, snapshot.id)],
        overlap_depth=_overlap_depth(files, order) if order.fields else None,
    )


def _overlap_depth(files: Sequence[LiveFile], order: SortOrder) -> float:
    shape = geometry(order)
    laid = by_partition(files, slice(len(order.fields))).values()
    return average_depth([(shape.depth(files), keyed_rows(files)) for files in laid])


def lookup_files(partitions: Partitions, specs: Mapping[int, Fields], key: Iterable[int]) -> float:
    """Data files that a look-up of a key opens on average, as far as partitions and bounds tell.

    A partition field that derives from the key leads to one value; through any other, and where files have several
    specs, the look-up has to ask all files.

    :param partitions: facts of the data files, with bounds of the key.
    :param specs: partition fields by spec.
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
    """How many of some files may hold a row's key, on average."""
    boxes = [f.box for f in files]
    numeric = all(len(box) == 1 and box[0].known and _number(box[0].upper) is not None for box in boxes)
    if not numeric:
        return overlap_depth([f.key_range for f in files])
    return covering([(_number(box[0].lower), _number(box[0].upper), box[0].rows) for box in boxes])


def _number(end: Any) -> Any:
    """The number that an end of a range is; None if it is none."""
    return end[1] if isinstance(end[-1], int | float | Decimal) and len(end) > 1 else None


def covering(ranges: Sequence[tuple[Any, Any, int]]) -> float:
    """How many ranges of numbers hold a row's number on average, if rows are spread evenly over their file's range.

    Unlike :func:`overlap_depth` it goes by distances: of files in random order, which begin and end nearly together,
    almost every look-up opens all.

    :param ranges: lowest and highest number, and rows.
    """
    lows, highs = sorted(low for low, _, _ in ranges), sorted(high for _, high, _ in ranges)
    ends = sorted({*lows, *highs})
    depths = [bisect.bisect_right(lows, end) - bisect.bisect_right(highs, end) for end in ends]
    pieces = (depth * (behind - end) for depth, end, behind in zip(depths, ends, ends[1:], strict=False))
    areas = dict(zip(ends, itertools.accumulate(pieces, initial=0), strict=True))
    found = 0.0
    for low, high, rows in ranges:
        at = bisect.bisect_right(lows, low) - bisect.bisect_left(highs, low)
        found += rows * (float((areas[high] - areas[low]) / (high - low)) if high > low else at)
    return found / max(sum(rows for _, _, rows in ranges), 1)


def _file_count(summary: Mapping[str, str]) -> int:
    totals = from_summary(summary)
    return totals.data_files + totals.delete_files


def _written(table: IcebergTable, before: Snapshot | None, after: Snapshot, job: str) -> int:
    """Bytes of all files that a job has added between two snapshots, as the summaries of its commits tell."""
    found, snapshot = 0, after
    while before is None or snapshot.id != before.id:
        if snapshot.summary.get(names.JOB) == job:
            found += int(snapshot.summary.get("added-files-size", 0))
        parent = table.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
        if parent is None:
            break
        snapshot = parent
    return found
