"""Remove old rows: whole files by metadata alone, with a floor that keeps the rows from returning."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from lakecdc.contract.errors import ConflictError, InputError, SpecError, UnsupportedError
from lakecdc.contract.expiring import ExpirePartitionsOptions
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg import scratch
from lakecdc.iceberg.commit import remove_files
from lakecdc.iceberg.definition import current_spec_id, refuse_aggregated
from lakecdc.iceberg.expressions import rows_below
from lakecdc.iceberg.fence import FloorFence, KnownFloor, PositionFence
from lakecdc.iceberg.table import Field, IcebergTable, Snapshot, carrier_of
from lakecdc.maintain.findings import Findings, approved_entry
from lakecdc.maintain.protected import refuse_lost_partitions
from lakecdc.maintain.reports import dry_run, empty, ends, nothing, seconds_since
from lakecdc.maintain.time_ranges import (
    Cut,
    Unit,
    between_files,
    file_times,
    moment_of,
    through_files,
    time_of,
    time_partitions,
    unit_of,
)
from lakecdc.metadata import names
from lakecdc.metadata.expiry import no_row_expires, row_cutoff
from lakecdc.metadata.floor import TIMES, Floor, read_floor, text_of
from lakecdc.runtime import failpoints
from lakecdc.sql import quoted_column

JOB = "expire_partitions"
_ATTEMPTS = 4
_SPARK = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


@dataclass(frozen=True)
class ExpiryPlan:
    """Rows to remove; ``known`` is the floor's property at planning time."""

    head: Snapshot
    column: Field
    cut: Cut
    floor: Floor | None
    known: str | None
    counts: dict[str, Any]

    @property
    def literal(self) -> str:
        """Return the removal time as text of the column's type."""
        assert self.cut.below is not None
        return text_of(moment_of(self.cut.below), self.column.type)


def expire_partitions(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Remove old rows from one table, and record the floor below which ingestion skips rows.

    :raises SpecError: no column or no age is given.
    :raises InputError: the column does not exist or has no times, the floor belongs to another column, or the approval
        is missing or differs.
    :raises UnsupportedError: no file has only old rows and row deletes are not allowed, or there are files of a dropped
        partition column.
    :raises ConflictError: other writers won every attempt.
    """
    options = spec.options_as(ExpirePartitionsOptions)
    cutoff, started = _cutoff(options, datetime.now(UTC), table.name), time.monotonic()
    if names.is_side_table(table.name) and not names.is_lake_table(table.name):
        raise UnsupportedError("It is one of lakecdc's own tables, whose rows do not expire by age.", table=table.name)
    refuse_aggregated(table, "Leave the table out, and its history table too.")
    approved_below = _approved_below(table, options)
    for attempt in range(_ATTEMPTS):
        head = table.refresh().head()
        if head is None:
            return empty(table)
        plan = _plan(table, options, cutoff, head, approved_below)
        if plan.cut.below is None or not plan.counts["rows_removed"]:
            return _nothing_to_remove(table, plan)
        refuse_lost_partitions(table, head.id)
        if options.dry_run:
            findings = Findings()
            findings.add({**plan.counts, "below": _iso(plan.cut.below), **_approval_facts(table, options)})
            return dry_run(table, head, **plan.counts, **findings.write(spec, table.name))
        failpoints.reach("before_expiry")
        try:
            after, removed = (_delete_rows if plan.counts["row_deletes"] else _remove_files)(table, plan)
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return _done(table, plan, after, {**removed, "retries": attempt, "seconds": seconds_since(started)})
    raise AssertionError


def _plan(
    table: IcebergTable, options: ExpirePartitionsOptions, cutoff: int, head: Snapshot, approved_below: int | None
) -> ExpiryPlan:
    column = _column(table, options.time_column)
    known, floor = table.properties.get(names.EXPIRED_BELOW), read_floor(table.properties, table.name)
    if floor is not None and floor.field_id != column.id:
        raise InputError(
            f"Cannot expire rows by column {column.name!r}: earlier rows expired by {floor.column!r}.",
            table=table.name,
            hint=f"A table has one floor. Unset its property {names.EXPIRED_BELOW!r} to start over; expired rows may "
            "then return.",
        )
    partition = time_partitions(table, column).get(current_spec_id(table))
    unit = cast("Unit", partition.transform) if partition and partition.transform != "identity" else "day"
    cutoff = unit_of(cutoff, unit) if unit in ("month", "year") or column.type == "date" else cutoff
    cutoff = cutoff if approved_below is None else min(cutoff, approved_below)
    files = file_times(table, column, head.id, cutoff)
    cut = (through_files if options.allow_row_deletes else between_files)(files, cutoff, unit, options.max_partitions)
    new_floor = floor
    if cut.below is not None:
        new_floor = Floor(column.id, column.name, moment_of(cut.below))
        if floor is not None and new_floor.below <= floor.below:
            # a floor never moves back
            new_floor = replace(floor, column=column.name)
    times = [file.lower for file in (*cut.whole, *cut.mixed) if file.lower is not None]
    counts = {
        "cutoff": _iso(cutoff),
        "oldest": _iso(min(times)) if times else None,
        "floor_before": _iso(time_of(floor.below)) if floor else None,
        "floor_after": _iso(time_of(new_floor.below)) if new_floor else None,
        "partitions_removed": cut.partitions,
        "partitions_left": cut.left,
        "data_files_removed": len(cut.whole),
        "bytes_removed": sum(file.bytes for file in cut.whole),
        "rows_removed": sum(file.rows for file in cut.whole),
        "mixed_files": len(cut.mixed),
        "row_deletes": options.allow_row_deletes and bool(cut.mixed),
    }
    plan = ExpiryPlan(head, column, cut, new_floor, known, counts)
    if counts["row_deletes"]:
        # some rows of the files may already be deleted
        counts["rows_removed"] = table.read(head.id, where=_old_rows(plan)).count()
    return plan


def _approval_facts(table: IcebergTable, options: ExpirePartitionsOptions) -> dict[str, Any]:
    column = _column(table, options.time_column)
    return {
        "table_uuid": table.uuid,
        "time_column": column.name,
        "field_id": column.id,
        "allow_row_deletes": options.allow_row_deletes,
    }


def _approved_below(table: IcebergTable, options: ExpirePartitionsOptions) -> int | None:
    """Return the approved removal time, or None if no approval is required."""
    approved = options.approval_of(table.name)
    if approved is None:
        return None
    listed = approved_entry(approved, table.name, _approval_facts(table.refresh(), options))
    return time_of(parse_moment(listed["below"], "below"))


def _remove_files(table: IcebergTable, plan: ExpiryPlan) -> tuple[Snapshot, dict[str, int]]:
    """Remove whole files, including files added since the plan."""
    fence = FloorFence(KnownFloor(table, {names.EXPIRED_BELOW: plan.known}))
    rows = rows_below(table, plan.column.name, plan.literal)
    after = remove_files(table, rows, fence, summary={names.JOB: JOB}, properties=_floor_property(plan))
    return after, _removed(after)


def _delete_rows(table: IcebergTable, plan: ExpiryPlan) -> tuple[Snapshot, dict[str, int]]:
    """Delete rows on a scratch branch, and publish it unless another writer commits first."""
    carrier = carrier_of(table.ancestors())
    fence = PositionFence(carrier.text if carrier else None, floor=KnownFloor(table, {names.EXPIRED_BELOW: plan.known}))
    with scratch.branch(table, plan.head) as branch:
        name = scratch.sql_name(table, branch)
        table.spark.sql(f"DELETE FROM {name} WHERE {_old_rows(plan)}")
        deletion = table.refresh().head(branch)
        failpoints.reach("before_commit")
        after = scratch.publish(table, branch, plan.head, fence, {names.JOB: JOB}, properties=_floor_property(plan))
    # the statement's count of deleted rows includes rows deleted before and rows copied to new files
    return after, {**(_removed(deletion) if deletion else {}), "rows_removed": plan.counts["rows_removed"]}


def _old_rows(plan: ExpiryPlan) -> str:
    return f"{quoted_column(plan.column.name)} < CAST('{plan.literal}' AS {_SPARK[plan.column.type]})"


def _floor_property(plan: ExpiryPlan) -> dict[str, str]:
    assert plan.floor is not None
    return {names.EXPIRED_BELOW: plan.floor.encode()}


def _nothing_to_remove(table: IcebergTable, plan: ExpiryPlan) -> TableReport:
    if plan.cut.below is None and plan.cut.mixed:
        raise UnsupportedError(
            f"Cannot remove whole files: each of {len(plan.cut.mixed)} data files that may have rows from before "
            f"{plan.counts['cutoff']} may also have newer ones.",
            table=table.name,
            hint=f"Partition or sort the table by {plan.column.name!r}, or set allow_row_deletes.",
        )
    return nothing(table, no_row_expires(plan.counts["cutoff"]), plan.head, **plan.counts)


def _done(table: IcebergTable, plan: ExpiryPlan, after: Snapshot, facts: dict[str, Any]) -> TableReport:
    counts, reason = plan.counts | facts, None
    if counts["partitions_left"]:
        reason = f"{counts['partitions_left']} more partitions are left for later runs"
    elif counts["mixed_files"] and not counts["row_deletes"]:
        reason = (
            f"{counts['mixed_files']} files stay, because they have rows from before {counts['cutoff']} and newer ones"
        )
    return TableReport(table.name, "done", reason, **ends(plan.head, after), metrics=counts)


def _removed(snapshot: Snapshot) -> dict[str, int]:
    """Return the counts of the removing snapshot, including files added since the plan."""
    entries = {
        "data_files_removed": "deleted-data-files",
        "rows_removed": "deleted-records",
        "bytes_removed": "removed-files-size",
    }
    return {name: int(snapshot.summary.get(entry, 0)) for name, entry in entries.items()}


def _cutoff(options: ExpirePartitionsOptions, now: datetime, table: str) -> int:
    """Return the removal time in microseconds since 1970."""
    moment = row_cutoff(options, now)
    if moment is None:
        raise SpecError("No age is given.", table=table, hint="Set max_age or older_than.")
    if moment > now:
        raise SpecError(
            f"options.older_than {options.older_than!r} is in the future.", table=table, hint="Use a past time."
        )
    return time_of(moment)


def _column(table: IcebergTable, name: str | None) -> Field:
    if not name:
        raise SpecError("No time column is given.", table=table.name, hint="Set time_column.")
    column = next((field for field in table.fields if field.name == name), None)
    if column is None:
        raise InputError(
            f"The column {name!r} does not exist.",
            table=table.name,
            hint=f"Use one of {', '.join(table.column_names)}.",
        )
    if column.type not in TIMES:
        raise InputError(
            f"Expected a date or timestamp column, got {name!r} of type {column.type}.",
            table=table.name,
            hint="Name another column, or compute one with clean.compute during ingestion.",
        )
    return column


def _iso(time: int) -> str:
    return moment_of(time).isoformat()
