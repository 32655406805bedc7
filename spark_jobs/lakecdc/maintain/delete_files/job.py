"""The job: plan, convert group by group, prove, commit, report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError, UnsupportedError, VerificationError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.commit import RowChanges, replace_deletes
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.definition import has_several_specs
from lakecdc.iceberg.file_io import discard_folder, new_folder, storage_properties
from lakecdc.iceberg.file_tasks import others_of
from lakecdc.iceberg.lease import LeaseHeldError
from lakecdc.iceberg.live_deletes import equality_deletes, has_no_equality_deletes
from lakecdc.iceberg.rewrite_guard import MovedRowsGuard, refusal_in_sight
from lakecdc.iceberg.staging import WrittenDeletes, delete_file
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.key_search.match import SearchFacts, convert, refuse_table
from lakecdc.maintain.delete_files.leftovers import refusal
from lakecdc.maintain.delete_files.plan import Group, Plan, has_none, plan
from lakecdc.maintain.delete_files.verify import Proof, Proving
from lakecdc.maintain.failed_files import discarded_on_failure
from lakecdc.maintain.reports import ends, nothing, seconds_since
from lakecdc.maintain.rewrite import head_of
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import names
from lakecdc.metadata.debt import NOTHING
from lakecdc.metadata.readers import readable_by
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.progress import ProgressLog
from lakecdc.writer.deletes import Target, Writer, count_only, writer_of

log = logging.getLogger(__name__)

JOB = "rewrite_delete_files"
#: maximum number of plans after conflicts
ATTEMPTS = 3


def rewrite_delete_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Convert a branch's equality deletes, merge its position deletes, and drop deletes that apply to nothing.

    :return: done, nothing, or conflict if other commits invalidated every attempt; earlier commits stay. An error after
        a commit is reported with it instead of raised.
    :raises InputError: the branch does not exist.
    :raises UnsupportedError: none of the table's deletes can be converted with certainty.
    :raises VerificationError: the proof failed; nothing of that group was published.
    """
    options = spec.options_as(RewriteDeleteFilesOptions)
    before = head_of(table, options.branch)
    if before is None or has_none(before):
        return nothing(table, NOTHING, before)
    refuse_table(table)
    return Rewrite(table, options, before).run()


class Rewrite:
    """One run over one table, with the results of its attempts."""

    def __init__(self, table: IcebergTable, options: RewriteDeleteFilesOptions, before: Snapshot) -> None:
        self._table, self._options, self._before = table, options, before
        self._begun = time.monotonic()
        # one per commit
        self._proofs: list[Proof] = []
        self._data_files = self._positions = self._superseded = self._conflicts = self._groups_left = 0
        self._seconds: dict[str, float] = {}
        self._plan: Plan | None = None
        self._own: set[int] = set()
        self._facts = SearchFacts()
        self._vectors = table.format_version >= 3

    def run(self) -> TableReport:
        """Execute plans until one is complete; plan again after each conflict."""
        if self._options.dry_run:
            return self._dry_run()
        while True:
            try:
                self._attempt()
                return self._report()
            except ConflictError as error:
                self._conflicts += 1
                log.info("%s: conflict %d: %s", self._table.name, self._conflicts, error)
                if self._conflicts == ATTEMPTS or isinstance(error, LeaseHeldError):
                    return self._report(error)
            except (InputError, UnsupportedError, VerificationError) as error:
                if not self._proofs:
                    raise
                # the report must include earlier groups, which are published
                return self._report(error)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Time the body of the ``with``; times of the same name add up."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - begun

    def _attempt(self) -> None:
        start = head_of(self._table, self._options.branch)
        self._groups_left = 0
        if start is None or has_none(start):
            return
        with start_tag(self._table, start, JOB):
            groups = list(self._planned(start).groups)
            reach(f"{JOB}.planned")
            progress = ProgressLog(self._table.name, "groups of scopes", len(groups))
            while groups:
                self._groups_left = len(groups)
                if self._out_of_time():
                    return
                self._convert(groups.pop(0), start)
                progress.add(1)
            self._groups_left = 0

    def _planned(self, start: Snapshot) -> Plan:
        with self._phase("plan"):
            planned = plan(self._table, start, self._options)
        if planned.leftovers and not planned.groups and not self._proofs:
            raise refusal(self._table, planned.leftovers)
        # the first plan describes the initial state
        self._plan = self._plan or planned
        return planned

    def _out_of_time(self) -> bool:
        limit = self._options.max_runtime
        return limit > 0 and time.monotonic() - self._begun > limit

    def _convert(self, group: Group, start: Snapshot) -> None:
        folder = new_folder(self._table, "deletes")
        discarding = partial(discard_folder, self._table, folder)
        with discarded_on_failure([f"{folder}/"], discarding, keep_failed=self._options.keep_failed_files):
            changes, written, proof = self._prepare(group, folder, start)
        reach(f"{JOB}.before_commit")
        # rows can have moved into the deletes' scopes only if there are several specs
        specs = {delete.spec_id for delete in group.deletes if delete.scope is not None}
        moved = MovedRowsGuard(self._table, start, specs) if specs and has_several_specs(self._table) else None
        with discarded_on_conflict(discarding), self._phase("commit"):
            committed = replace_deletes(
                self._table,
                changes,
                start_snapshot_id=start.id,
                branch=self._options.branch,
                guard=moved,
            )
        self._own.add(committed.id)
        self._data_files += len(written)
        self._positions += sum(w.added for w in written)
        self._superseded += len(changes.removed_deletes) - len(group.deletes) - len(group.rowless)
        self._proofs.append(proof)

    def _prepare(self, group: Group, folder: str, start: Snapshot) -> tuple[RowChanges, list[WrittenDeletes], Proof]:
        """Write a group's delete files, and prove their commit."""
        with Proving(self._table, group.tasks, self._options.verify, group.deletes) as proving:
            with self._phase("match_and_write"):
                written = self._converted(group, folder, writer_of(self._table))
            new = {w.file_number: w for w in written}
            referenced, branch = [t.location for t in group.tasks if t.number in new], self._options.branch
            why = refusal_in_sight(self._table, start, referenced, branch=branch, own=self._own, counted="vectors")
            if why:
                # a commit that will be refused needs no proof
                raise ConflictError(f"Stopped the conversion: {why}.", table=self._table.name, hint="Run again.")
            going = {delete.key: delete.java for delete in group.positions}
            changed, added, others = dict[int, list[Any]](), [], others_of(group.tasks)
            for task in group.tasks:
                stay = {other.place: other for other in others.get(task.number, ()) if other.key not in going}
                if task.number not in new and len(stay) == task.others:
                    continue
                if task.number in new:
                    # the new file has all positions; in v3 a reader uses only the vector
                    going |= {other.key: task.other(i) for i, other in stay.items() if other.file_scoped}
                    stay = {} if self._vectors else {i: o for i, o in stay.items() if o.key not in going}
                    added.append(delete_file(self._table, task.java, new[task.number]))
                deletes = [task.other(i) for i in stay]
                changed[task.number] = deletes + added[-1:] if task.number in new else deletes
            with self._phase("verify"):
                proof = proving.finish(changed)
        removed = [*(delete.java for delete in (*group.deletes, *group.rowless)), *going.values()]
        summary = {names.JOB: JOB}
        changes = RowChanges(deletes=added, removed_deletes=removed, summary=summary, deleted_from=referenced)
        return changes, written, proof

    def _converted(self, group: Group, folder: str, writer: Writer) -> list[WrittenDeletes]:
        if not group.tasks:
            return []
        data_files = {task.number: task.location for task in group.tasks}
        target = Target(folder, storage_properties(self._table), data_files, group.merged)
        return convert(self._table, group, target, writer, self._facts)

    def _dry_run(self) -> TableReport:
        planned = self._planned(self._before)
        for group in planned.groups:
            with self._phase("match"):
                would = self._converted(group, "", count_only)
            self._positions += sum(w.added for w in would)
            self._data_files += len(would)
        self._groups_left = len(planned.groups)
        return self._report()

    def _report(self, error: LakecdcError | None = None) -> TableReport:
        self._facts.log_iceberg(self._table)
        after = self._table.refresh().head(self._options.branch)
        facts = ends(self._before, after) | {"metrics": self._metrics(after)}
        if error is not None:
            return TableReport.failure(self._table.name, error, **facts)
        if self._plan is None or not self._plan.groups:
            return TableReport(self._table.name, "nothing", NOTHING, **facts)
        remarks = [leftover.remark() for leftover in self._plan.leftovers]
        if self._options.dry_run:
            remarks.insert(0, "Dry run: nothing was changed.")
        elif left := self._groups_left:
            remarks.insert(0, f"Stopped after max_runtime; {left} groups of scopes are left for the next run.")
        return TableReport(self._table.name, "done", " ".join(remarks) or None, **facts)

    def _metrics(self, after: Snapshot | None) -> dict[str, Any]:
        planned = self._plan or Plan(self._before)
        obsolete = [*planned.obsolete.values()]
        added = 0 if self._options.dry_run else self._data_files
        rounded = {name: round(seconds, 3) for name, seconds in self._seconds.items()}
        return {
            "equality_delete_files_before": self._equality_delete_files(self._before),
            "equality_delete_files_after": self._equality_delete_files(after),
            "equality_deletes": sum(delete.records for delete in planned.deletes),
            "position_delete_files_to_merge": obsolete.count("merge"),
            "dangling_position_deletes": obsolete.count("dangling"),
            "scopes": planned.scopes,
            "data_files_reached": sum(len(group.tasks) for group in planned.groups),
            "data_files_by_iceberg": len(self._facts.by_iceberg),
            "data_files_touched": self._data_files,
            "positions": self._positions,
            "delete_files_added": 0 if self._vectors else added,
            "deletion_vectors_added": added if self._vectors else 0,
            "delete_files_superseded": self._superseded,
            "commits": len(self._proofs),
            "conflicts": self._conflicts,
            "groups_left": self._groups_left,
            "equality_delete_files_unsupported": sum(each.equality_delete_files for each in planned.leftovers),
            "unsupported": [leftover.facts() for leftover in planned.leftovers],
            "verified": self._verified(),
            "readable_by": {"before": self._readers(self._before), "after": self._readers(after)},
            "seconds": {**rounded, "total": seconds_since(self._begun)},
        }

    def _equality_delete_files(self, snapshot: Snapshot | None) -> int:
        """Count a snapshot's equality-delete files, also if another run's lease ended this run before any plan."""
        if snapshot is None:
            return 0
        if self._plan is not None and self._plan.start.id == snapshot.id:
            return self._plan.equality_delete_files
        return 0 if has_no_equality_deletes(snapshot) else len(equality_deletes(self._table, snapshot.id))

    def _readers(self, snapshot: Snapshot | None) -> list[str]:
        summary = snapshot.summary if snapshot else {}
        kinds = [int(summary.get(f"total-{kind}-deletes", 0)) for kind in ("equality", "position")]
        return readable_by(self._table.format_version, *kinds)

    def _verified(self) -> dict[str, Any]:
        modes = {proof.mode for proof in self._proofs}
        verified: dict[str, Any] = {
            "mode": next((mode for mode in ("sample", "full") if mode in modes), self._options.verify),
            "files": sum(proof.files for proof in self._proofs),
            "of": sum(proof.of for proof in self._proofs),
        }
        if self._options.verify == "off":
            verified["reason"] = self._options.verify_off_reason
        return verified
