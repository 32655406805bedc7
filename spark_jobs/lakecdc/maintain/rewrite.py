"""Rewrite data files: read at one snapshot, write uncommitted, prove, publish batch by batch."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewritingOptions
from lakecdc.iceberg.bloom_columns import bloom_filter_columns
from lakecdc.iceberg.commit import RowChanges, replace_data_files
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.rewrite_guard import EqualityDeleteGuard, refusal_in_sight
from lakecdc.iceberg.rewrite_tasks import plan_tasks, removable_deletes, staged_file
from lakecdc.iceberg.sort_order import SortOrder
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.stored_types import unread_columns
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.key_search.bounded import bounded_tasks
from lakecdc.key_search.carry_over import CarriedOver, carry_over, identifying_columns
from lakecdc.maintain import verify_rows
from lakecdc.maintain.failed_files import discarded_on_failure
from lakecdc.maintain.reports import dry_run, empty, ends, joined, nothing, seconds_since
from lakecdc.maintain.rewriting.by_iceberg import IcebergRewrite
from lakecdc.maintain.rewriting.choice import refusals
from lakecdc.maintain.rewriting.in_tasks import TaskRewrite
from lakecdc.maintain.rewriting.written import Written
from lakecdc.maintain.selection import Unit, batches
from lakecdc.maintain.start_tag import start_tag
from lakecdc.maintain.verify_rows import Proof
from lakecdc.metadata import names
from lakecdc.metadata.file_sizes import target_file_bytes
from lakecdc.reader.projection import UnreadError
from lakecdc.runtime import failpoints
from lakecdc.runtime.progress import ProgressLog

log = logging.getLogger(__name__)

# maximum number of plans whose start snapshot expires
_ATTEMPTS = 3
# maximum number of times that a commit carries over newly arrived deletes
_CARRIES = 10
# report numbers of published batches
_PUBLISHED = (
    "commits",
    "data_files_removed",
    "data_files_added",
    "delete_files_removed",
    "rows_deleted_meanwhile",
    "bytes_read",
    "bytes_written",
    "rows",
)
#: report numbers that are summed over several plans of one run
SUMMED = (*_PUBLISHED, "groups", "seconds")


@dataclass(frozen=True)
class RewritePlan:
    """Data files to rewrite.

    :param units: data files to rewrite together; empty if no rewrite is worthwhile.
    :param reason: why there is nothing to do.
    :param summary: further entries for the snapshot summary.
    :param left: files that should be rewritten but are not, and why.
    :param partitions_by: partition values as Spark SQL, if rows move to other partitions.
    """

    job: str
    start: Snapshot
    units: Sequence[Unit]
    order: SortOrder
    target: int
    reason: str
    counts: dict[str, Any]
    summary: dict[str, str] = field(default_factory=dict)
    left: str | None = None
    partitions_by: tuple[str, ...] = ()
    branch: str = MAIN


def target_bytes(table: IcebergTable, options: RewritingOptions, start: Snapshot) -> int:
    """Return the target bytes per file: from the option, else the table's property, else the table's size."""
    size = int(start.summary.get("total-files-size", 0))
    return options.target_file_size_bytes or target_file_bytes(table.properties, size)


def head_of(table: IcebergTable, branch: str) -> Snapshot | None:
    """Return the newest snapshot of a branch, None for an empty table; raise InputError if the branch is missing."""
    head = table.refresh().head(branch)
    if branch != MAIN and not table.has_branch(branch):
        raise InputError(f"The branch {branch!r} does not exist.", table=table.name, hint="Check options.branch.")
    return head


def from_head(table: IcebergTable, work: Callable[[Snapshot], TableReport], branch: str = MAIN) -> TableReport:
    """Plan from a branch's head and execute the plan; retry if the head expires before the job's tag protects it.

    :param work: raises only before anything is committed.
    :raises InputError: the branch does not exist.
    :raises ConflictError: the head expired in every attempt.
    """
    expired: Exception | None = None
    for _ in range(_ATTEMPTS):
        start = head_of(table, branch)
        if start is None:
            return empty(table)
        try:
            return work(start)
        except Exception as error:
            if table.refresh().snapshot(start.id) is not None:
                raise
            expired = error
            log.info("%s: snapshot %d has expired, planning again", table.name, start.id)
    raise ConflictError(
        f"The start snapshot expired during each of {_ATTEMPTS} plans.",
        table=table.name,
        hint="Nothing was changed. Keep snapshots for some minutes, and run again.",
    ) from expired


def execute(table: IcebergTable, plan: RewritePlan, options: RewritingOptions) -> TableReport:
    """Execute a plan with one commit per batch of units; refuse Bloom filters that cannot be written."""
    columns = [*table.column_names, *(verify_rows.LINEAGE if table.format_version >= 3 else ())]
    proof, bloom_filters = verify_rows.proof(options, columns), bloom_filter_columns(table)
    if not plan.units:
        return nothing(table, joined(plan.reason, plan.left), plan.start, **plan.counts)
    counts = plan.counts | {
        "groups": len(plan.units),
        "files_chosen": sum(len(unit.files) for unit in plan.units),
        "bytes_chosen": sum(unit.bytes for unit in plan.units),
        "files_planned": sum(unit.outputs for unit in plan.units),
        "bytes_planned": round(sum(file.live_bytes for unit in plan.units for file in unit.files)),
        "files_in_sequence": sum(len(unit.files) for unit in plan.units if unit.in_sequence),
        "target_file_size_bytes": plan.target,
    }
    if options.dry_run:
        return dry_run(table, plan.start, **counts)
    started, rewrite = time.monotonic(), Rewrite(table, plan, proof, bloom_filters)
    reason: str | None = None
    failed: Exception | None = None
    with start_tag(table, plan.start, plan.job):
        try:
            left = rewrite.run(options.max_group_bytes, options.max_runtime)
            reason = f"stopped after max_runtime; {left} of {len(plan.units)} groups are left" if left else None
        except Exception as error:
            if not isinstance(error, LakecdcError):
                log.exception("%s: the rewrite failed", table.name)
            failed = error
    counts |= rewrite.counts | {"verified": proof.states, "seconds": seconds_since(started)}
    if rewrite.refused:
        counts["by_iceberg"] = "; ".join(rewrite.refused)
    facts = ends(plan.start, rewrite.head) | {"metrics": counts}
    if failed is not None:
        return TableReport.failure(table.name, failed, **facts)
    return TableReport(table.name, "done", joined(reason, plan.left) or None, **facts)


class Rewrite:
    """One run over the units of a plan.

    :param bloom_filters: columns with Bloom filters in the new files.
    :ivar counts: updated with each commit, like the head, so that they are correct even if a later batch fails.
    :ivar refused: distinct reasons why Iceberg's reader and writer rewrite some units.
    """

    def __init__(self, table: IcebergTable, plan: RewritePlan, proof: Proof, bloom_filters: Sequence[str]) -> None:
        self.table, self.plan, self.proof = table, plan, proof
        self.head, self.counts = plan.start, Counter(dict.fromkeys(_PUBLISHED, 0))
        self.spec_id = current_spec_id(table)
        locations = {file.location for unit in plan.units for file in unit.files}
        self.tasks = plan_tasks(table, plan.start.id, locations)
        self._why = refusals(table, plan.order, plan.units)
        self.refused = dict.fromkeys(why for why in self._why if why)
        self._by_iceberg = IcebergRewrite(table, plan, proof, bloom_filters)
        self._in_tasks = TaskRewrite(table, plan, proof, bloom_filters)
        self._carries = bool(identifying_columns(table))

    def run(self, max_group_bytes: int, max_runtime: float = 0.0) -> int:
        """Rewrite batch after batch, and return the number of units not started.

        :param max_group_bytes: bytes rewritten per commit.
        :param max_runtime: seconds; 0 means no limit.
        :raises LakecdcError: a batch failed or was refused; earlier ones stay published.
        """
        end = time.monotonic() + max_runtime if max_runtime else None
        units = self.plan.units
        work = [
            (batch, in_tasks)
            for in_tasks in (True, False)
            for batch in batches(
                [unit for unit, why in zip(units, self._why, strict=True) if (why is None) is in_tasks], max_group_bytes
            )
        ]
        progress = ProgressLog(self.table.name, "file groups", len(units), sum(unit.bytes for unit in units))
        for number, (batch, in_tasks) in enumerate(work):
            if number and end is not None and time.monotonic() > end:
                return sum(len(rest) for rest, _ in work[number:])
            self._batch(batch, in_tasks)
            progress.add(len(batch), sum(unit.bytes for unit in batch))
        return 0

    def _batch(self, batch: Sequence[Unit], in_tasks: bool) -> None:
        locations = [file.location for unit in batch for file in unit.files]
        self._refuse_stale_files(locations)
        tasks = [self.tasks[location] for location in locations]
        # Python tasks do not apply equality deletes
        with bounded_tasks(self.table, tasks, self.plan.start, 0 if in_tasks else None) as readable:
            written = self._written(batch, dict(zip(locations, readable, strict=True)), in_tasks)
            files = written.files
            discarding = partial(discard, self.table, files)
            places = [staged_file(file).location for file in files]
            with discarded_on_failure(places, discarding, keep_failed=self.proof.keep_failed):
                failpoints.reach("rewrite_staged")
                self._refuse_stale_files(locations)
                written.prove()
                failpoints.reach("rewrite_before_commit")
        with discarded_on_conflict(discarding):
            self._publish(tasks, files)

    def _written(self, batch: Sequence[Unit], tasks: Mapping[str, Any], in_tasks: bool) -> Written:
        if in_tasks:
            try:
                return self._in_tasks.write(batch, tasks, self.tasks)
            except UnreadError as error:
                self.refused[str(error)] = None
                log.info("%s: Iceberg's reader and writer rewrite %d files: %s", self.table.name, len(tasks), error)
        for name, kind in unread_columns(self.table.schema_fields).items():
            why = f"{'; '.join(self.refused)}, and Spark has no type for the column {name!r} of type {kind}"
            raise UnsupportedError(f"Cannot rewrite files: {why}.", table=self.table.name)
        return self._by_iceberg.write(batch, tasks)

    def _publish(self, tasks: Sequence[Any], files: Sequence[Any]) -> None:
        """Commit; carry over deletes that others commit meanwhile, repeatedly if need be."""
        carried: CarriedOver | None = None
        for attempt in range(_CARRIES + 1):
            try:
                self._commit(tasks, files, carried)
                return
            except ConflictError:
                head = self.table.refresh().head(self.plan.branch)
                known = carried.since if carried else self.plan.start
                if carried is not None:
                    discard(self.table, carried.added)
                if not self._carries or attempt == _CARRIES or head is None or head == known:
                    raise
                # the read snapshot must still be an ancestor of the branch
                self._refuse_stale_files([str(task.file().location()) for task in tasks])
                carried = carry_over(self.table, head, tasks, files)
                log.info("%s: %d rows were deleted during the rewrite", self.table.name, carried.rows)

    def _commit(self, tasks: Sequence[Any], files: Sequence[Any], carried: CarriedOver | None) -> None:
        removed = [task.file() for task in tasks]
        deletes = carried.removed if carried else removable_deletes(self.table, tasks)
        guard = EqualityDeleteGuard(
            self.table,
            self.plan.start,
            [str(file.location()) for file in removed],
            {int(file.specId()) for file in removed},
            self.spec_id,
        )
        summary = {names.JOB: self.plan.job, **self.plan.summary}
        added = carried.added if carried else ()
        changes = RowChanges(files, added, removed_rows=removed, removed_deletes=deletes, summary=summary)
        written = [staged_file(file) for file in files]
        read = sum(int(file.fileSizeInBytes()) for file in removed)
        since, branch = carried.since if carried else None, self.plan.branch
        self.head = replace_data_files(self.table, changes, self.plan.start, since=since, branch=branch, guard=guard)
        self.counts.update(
            commits=1,
            data_files_removed=len(removed),
            data_files_added=len(files),
            delete_files_removed=len(deletes),
            rows_deleted_meanwhile=carried.rows if carried else 0,
            bytes_read=read,
            bytes_written=sum(file.bytes for file in written),
            rows=sum(file.rows for file in written),
        )

    def _refuse_stale_files(self, locations: Sequence[str]) -> None:
        counted: Literal["all", "none"] = "none" if self._carries else "all"
        why = refusal_in_sight(self.table, self.plan.start, locations, branch=self.plan.branch, counted=counted)
        if why:
            raise ConflictError(f"Stopped the rewrite: {why}.", table=self.table.name, hint="Run again.")
