"""Removing old rows: whole files by metadata alone, and a floor that keeps the rows from coming back."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from lakecdc.contract.errors import ConflictError, InputError, SpecError, UnsupportedError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.options import ExpirePartitionsOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg import scratch
from lakecdc.iceberg.commit import remove_files, rows_below
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.fence import FloorFence, KnownFloor, PositionFence
from lakecdc.iceberg.scan import specs_losing_partitions
from lakecdc.iceberg.table import carrier_of
from lakecdc.maintain.file_times import file_times, time_partitions
from lakecdc.maintain.findings import Findings, approved_lines
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.time_ranges import Cut, Unit, between_files, moment_of, through_files, time_of, unit_of
from lakecdc.metadata import names
from lakecdc.metadata.expiry import no_row_can_go, row_cutoff
from lakecdc.metadata.floor import TIMES, Floor, read_floor, text_of
from lakecdc.runtime import failpoints
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import Field, IcebergTable, Snapshot

JOB = "expire_partitions"
_ATTEMPTS = 4
_SPARK = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


@dataclass(frozen=True)
class ExpiryPlan:
    """What is to be removed.

    :param column: the time column.
    :param floor: that the table is to have; None if nothing is removed.
    :param known: the floor's property as it was when the plan was made.
    :param counts: for the report.
    """

    head: Snapshot
    column: Field
    cut: Cut
    floor: Floor | None
    known: str | None
    counts: dict[str, Any]

    @property
    def literal(self) -> str:
        """The moment below which rows go, as a text of the column's type."""
        assert self.cut.below is not None
        return text_of(moment_of(self.cut.below), self.column.type)


def expire_partitions(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Remove the rows of one table that are older than wanted, and record the floor below which they stay away.

    :raises SpecError: no column or no age is given.
    :raises InputError: there is no such column, it has no times, or the floor is another column's; nobody has agreed to
        the removal, or to another one.
    :raises UnsupportedError: no file holds nothing but old rows, and rows may not be deleted one by one; or there are
        files of a partition column that was dropped.
    :raises ConflictError: other writers were faster, again and again.
    """
    options = spec.options
    assert isinstance(options, ExpirePartitionsOptions)
    cutoff, started = _cutoff(options, datetime.now(UTC), table.name), time.monotonic()
    _refuse_side_table(table)
    agreed = _approved_below(table, options)
    for attempt in range(_ATTEMPTS):
        head = table.refresh().head()
        if head is None:
            return nothing(table, "the table has no snapshot")
        plan = _plan(table, options, cutoff, head, agreed)
        if plan.cut.below is None or not plan.counts["rows_removed"]:
            return _nothing_to_remove(table, plan)
        if specs_losing_partitions(table, head.id):
            raise UnsupportedError(
                "It has data files of a partition spec whose column was dropped, whose manifests would be made anew.",
                table=table.name,
                hint="Run compact_data_files first, which moves their rows to the current spec.",
            )
        if options.dry_run:
            return nothing(
                table,
                "dry run: nothing was changed",
                head,
                **plan.counts,
                **_findings(table, plan, spec).leave(spec, table.name),
            )
        failpoints.reach("before_expiry")
        try:
            after, removed = (_delete_rows if plan.counts["row_deletes"] else _remove_files)(table, plan)
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        seconds = round(time.monotonic() - started, 3)
        return _done(table, plan, after, {**removed, "retries": attempt, "seconds": seconds})
    raise AssertionError


def _plan(
    table: IcebergTable, options: ExpirePartitionsOptions, cutoff: int, head: Snapshot, agreed: int | None
) -> ExpiryPlan:
    column = _column(table, options.time_column)
    known, floor = table.properties.get(names.EXPIRED_BELOW), read_floor(table.properties, table.name)
    if floor is not None and floor.field_id != column.id:
        raise InputError(
            f"Rows have expired by the column {floor.column!r}, and now they are to expire by {column.name!r}.",
            table=table.name,
            hint=f"A table has one floor. Unset its property {names.EXPIRED_BELOW!r} to begin anew: rows that have "
            "expired may come in again then.",
        )
    unit = _unit(table, column)
    cutoff = unit_of(cutoff, unit) if unit in ("month", "year") or column.type == "date" else cutoff
    cutoff = cutoff if agreed is None else min(cutoff, agreed)
    files = file_times(table, column, head.id, cutoff)
    cut = (through_files if options.allow_row_deletes else between_files)(files, cutoff, unit, options.max_partitions)
    wanted = _raised(floor, Floor(column.id, column.name, moment_of(cut.below))) if cut.below is not None else floor
    times = [file.lower for file in (*cut.whole, *cut.mixed) if file.lower is not None]
    counts = {
        "cutoff": _iso(cutoff),
        "oldest": _iso(min(times)) if times else None,
        "floor_before": _iso(time_of(floor.below)) if floor else None,
        "floor_after": _iso(time_of(wanted.below)) if wanted else None,
        "partitions_removed": cut.partitions,
        "partitions_left": cut.left,
        "data_files_removed": len(cut.whole),
        "bytes_removed": sum(file.bytes for file in cut.whole),
        "rows_removed": sum(file.rows for file in cut.whole),
        "mixed_files": len(cut.mixed),
        "row_deletes": options.allow_row_deletes and bool(cut.mixed),
    }
    plan = ExpiryPlan(head, column, cut, wanted, known, counts)
    return _with_rows(table, plan) if counts["row_deletes"] else plan


def _findings(table: IcebergTable, plan: ExpiryPlan, spec: JobSpec) -> Findings:
    """What a person is to agree to: that the rows go which are older than a moment."""
    assert plan.cut.below is not None and isinstance(spec.options, ExpirePartitionsOptions)
    found = Findings()
    found.add({**plan.counts, "below": _iso(plan.cut.below), **_what_is_cut(table, spec.options)})
    return found


def _what_is_cut(table: IcebergTable, options: ExpirePartitionsOptions) -> dict[str, Any]:
    """What has to be the same for an approval to hold."""
    column = _column(table, options.time_column)
    return {
        "table_uuid": table.uuid,
        "time_column": column.name,
        "field_id": column.id,
        "allow_row_deletes": options.allow_row_deletes,
    }


def _approved_below(table: IcebergTable, options: ExpirePartitionsOptions) -> int | None:
    """The moment below which a person has agreed that rows go; None if nobody is asked.

    :raises InputError: nobody has agreed, the list of it was changed, or it is of something else.
    """
    approved = options.approval_of(table.name)
    if approved is None:
        return None
    (line,) = approved_lines(approved, table.name)
    found = json.loads(line)
    for name, value in _what_is_cut(table.refresh(), options).items():
        if found[name] != value:
            raise InputError(
                f"Its {name} is {value!r}, and a person has agreed to a removal of {found[name]!r}.",
                table=table.name,
                hint="Nothing was removed. Make a dry run anew, and have its list approved.",
            )
    return time_of(parse_moment(found["below"], "below"))


def _raised(floor: Floor | None, wanted: Floor) -> Floor:
    """The higher one of two floors: one never moves back."""
    return wanted if floor is None or wanted.below > floor.below else replace(floor, column=wanted.column)


def _with_rows(table: IcebergTable, plan: ExpiryPlan) -> ExpiryPlan:
    """The plan with the number of rows that a ``DELETE`` removes: what files once held may have gone already."""
    found = table.read(plan.head.id, "count(*) AS rows", _old_rows(plan)).first()
    assert found is not None
    return replace(plan, counts=plan.counts | {"rows_removed": int(found["rows"])})


def _remove_files(table: IcebergTable, plan: ExpiryPlan) -> tuple[Snapshot, dict[str, int]]:
    """Remove whole files, those that have come since the plan was made included."""
    fence = FloorFence(KnownFloor(table, {names.EXPIRED_BELOW: plan.known}))
    rows = rows_below(table, plan.column.name, plan.literal)
    after = remove_files(table, rows, fence, summary={names.JOB: JOB}, properties=_floor_property(plan))
    return after, _removed(after)


def _delete_rows(table: IcebergTable, plan: ExpiryPlan) -> tuple[Snapshot, dict[str, int]]:
    """Delete rows on a scratch branch, which becomes the table's state unless another writer comes first."""
    carrier = carrier_of(table.ancestors())
    fence = PositionFence(carrier.text if carrier else None, floor=KnownFloor(table, {names.EXPIRED_BELOW: plan.known}))
    with scratch.branch(table, plan.head) as branch:
        name = scratch.sql_name(table, branch)
        table.spark.sql(f"DELETE FROM {name} WHERE {_old_rows(plan)}")
        made = table.refresh().head(branch)
        failpoints.reach("before_commit")
        after = scratch.publish(table, branch, plan.head, fence, {names.JOB: JOB}, properties=_floor_property(plan))
    # of the rows that it gives as deleted some went before, or stand in new files
    return after, {**(_removed(made) if made else {}), "rows_removed": plan.counts["rows_removed"]}


def _old_rows(plan: ExpiryPlan) -> str:
    return f"{quoted_column(plan.column.name)} < CAST('{plan.literal}' AS {_SPARK[plan.column.type]})"


def _floor_property(plan: ExpiryPlan) -> dict[str, str]:
    assert plan.floor is not None
    return {names.EXPIRED_BELOW: plan.floor.encode()}


def _nothing_to_remove(table: IcebergTable, plan: ExpiryPlan) -> TableReport:
    if plan.cut.below is None and plan.cut.mixed:
        raise UnsupportedError(
            f"Of {len(plan.cut.mixed)} data files that may hold rows from before {plan.counts['cutoff']} none holds "
            "such rows alone, so that files would have to be read and rewritten.",
            table=table.name,
            hint=f"Partition the table by {plan.column.name!r} or sort it by that, or set allow_row_deletes.",
        )
    return nothing(table, no_row_can_go(plan.counts["cutoff"]), plan.head, **plan.counts)


def _done(table: IcebergTable, plan: ExpiryPlan, after: Snapshot, facts: dict[str, Any]) -> TableReport:
    counts, reason = plan.counts | facts, None
    if counts["partitions_left"]:
        reason = f"{counts['partitions_left']} more partitions are left to later runs"
    elif counts["mixed_files"] and not counts["row_deletes"]:
        reason = f"{counts['mixed_files']} files hold rows from before {counts['cutoff']} and others, and stay"
    before, now = str(plan.head.id), str(after.id)
    return TableReport(table.name, "done", reason, snapshot_before=before, snapshot_after=now, metrics=counts)


def _removed(snapshot: Snapshot) -> dict[str, int]:
    """What the snapshot says that it removed, which is more than was planned if files have come meanwhile."""
    found = {
        "data_files_removed": "deleted-data-files",
        "rows_removed": "deleted-records",
        "bytes_removed": "removed-files-size",
    }
    return {name: int(snapshot.summary.get(entry, 0)) for name, entry in found.items()}


def _cutoff(options: ExpirePartitionsOptions, now: datetime, table: str) -> int:
    """Microseconds since 1970 of the moment before which rows are to go."""
    moment = row_cutoff(options, now)
    if moment is None:
        raise SpecError(
            "Nobody has said from which age on rows are to go.", table=table, hint="Set max_age or older_than."
        )
    if moment > now:
        raise SpecError(f"options.older_than is {options.older_than!r}, which is yet to come.", table=table)
    return time_of(moment)


def _column(table: IcebergTable, name: str | None) -> Field:
    """The time column.

    :raises SpecError: none is named.
    :raises InputError: there is none of that name, or it has no times.
    """
    if not name:
        raise SpecError("Nobody has said by which column rows are to go.", table=table.name, hint="Set time_column.")
    found = next((field for field in table.fields if field.name == name), None)
    if found is None:
        raise InputError(
            f"There is no column {name!r}.", table=table.name, hint=f"It has {', '.join(table.column_names)}."
        )
    if found.type not in TIMES:
        raise InputError(
            f"The column {name!r} is of type {found.type}: rows can expire by a date or a timestamp alone.",
            table=table.name,
            hint="Name another column, or compute one by clean.compute on the way into the table.",
        )
    return found


def _refuse_side_table(table: IcebergTable) -> None:
    if names.is_side_table(table.name) and not names.is_lake_table(table.name):
        raise UnsupportedError("It is one of lakecdc's own tables, whose rows do not go by age.", table=table.name)


def _unit(table: IcebergTable, column: Field) -> Unit:
    """What a partition is: that of the current spec, or a day."""
    field = time_partitions(table, column).get(current_spec_id(table))
    return "day" if field is None or field.transform == "identity" else cast("Unit", field.transform)


def _iso(time: int) -> str:
    return moment_of(time).isoformat()
