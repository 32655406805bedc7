"""Remove orphan files, which no snapshot, branch, tag or statistics of a table reference, and restore them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.contract.expiring import RemoveOrphanFilesOptions
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.neighbours import Neighbour, tables_of_catalog
from lakecdc.iceberg.stored_files import StoredFile
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.findings import Findings, approved_lines, line_of
from lakecdc.maintain.metadata_versions import remove_leftovers, require_hint, trim
from lakecdc.maintain.orphans.guards import keep_or_refuse, refuse_shared, refuse_unsupported
from lakecdc.maintain.orphans.ledger import Batch, Disposal, Ledger, TrashedFile, new_run
from lakecdc.maintain.orphans.reachable import HashSet, Reachable, line_hash, name_hash
from lakecdc.maintain.orphans.search import Question, SearchResult, is_table_metadata, search
from lakecdc.maintain.orphans.storage import TableStorage, abort_old
from lakecdc.maintain.protected import apply_policy
from lakecdc.maintain.reports import DRY_RUN, ends, seconds_since
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.locations import in_object_store
from lakecdc.runtime import failpoints

#: maximum number of files trashed between two reads of the table's metadata
BATCH_FILES = 1000


@dataclass
class RemoveOrphanFiles:
    """The job for the tables of a spec; ``clock`` returns seconds since 1970."""

    clock: Callable[[], float] = time.time
    _neighbours: dict[str, list[Neighbour]] = field(default_factory=dict)
    #: catalogs whose own leftovers were removed
    _tidied: set[str] = field(default_factory=set)

    def __call__(self, table: IcebergTable, spec: JobSpec) -> TableReport:
        """Find the orphans of one table and, unless it is a dry run, trash, restore or delete them.

        :raises UnsupportedError: the table's files cannot be judged safely.
        :raises ConflictError: the table was dropped or recreated meanwhile.
        :raises InputError: the run to restore does not exist, a table of the catalog cannot be loaded, or the approval
            is missing or its list was changed.
        """
        options, started = spec.options_as(RemoveOrphanFilesOptions), time.monotonic()
        work = _Work(table.refresh(), options, int(self.clock() * 1000), partial(apply_policy, table, spec))
        if options.action == "restore":
            metrics = work.restore()
        else:
            refuse_unsupported(table, work.folders)
            refuse_shared(table, work.folders, self._tables_of(table))
            metrics = work.remove() if options.action == "remove" else work.purge()
            if not options.dry_run and table.catalog not in self._tidied:
                self._tidied.add(table.catalog)
                metrics |= remove_leftovers(table.catalog, work.before_ms)
        outcome, reason = _outcome(options, metrics)
        head = table.head()
        metrics |= work.findings.write(spec, table.name) | {"seconds": seconds_since(started)}
        return TableReport(table.name, outcome, reason, **ends(head, head), metrics=metrics)

    def _tables_of(self, table: IcebergTable) -> list[Neighbour]:
        # a table created during the run has no old files
        if table.catalog not in self._neighbours:
            self._neighbours[table.catalog] = tables_of_catalog(table.spark, table.catalog)
        return self._neighbours[table.catalog]


class _Work:
    """A run on one table; ``recheck`` refuses if the policy no longer allows the job: a search may take hours."""

    def __init__(
        self, table: IcebergTable, options: RemoveOrphanFilesOptions, now_ms: int, recheck: Callable[[], object]
    ) -> None:
        self._table, self._options, self._now_ms, self._recheck = table, options, now_ms, recheck
        #: files written before this time are old enough
        self.before_ms = now_ms - int(options.seconds_kept() * 1000)
        self._storage = TableStorage(table)
        self._ledger = Ledger(table, self._storage)
        self.folders = self._ledger.folders
        self._disposal = Disposal(table, self._storage, self._ledger)
        self._reachable = Reachable(table)
        self.findings = Findings()
        approved = options.approval_of(table.name)
        self._approved = HashSet(map(line_hash, approved_lines(approved, table.name))) if approved else None
        self._not_approved = 0

    def remove(self) -> dict[str, Any]:
        """Delete files that were trashed long enough ago, and trash current orphans."""
        before_ms = self.before_ms
        metadata = self._reachable.refresh()
        waiting = HashSet(name_hash(f.location) for b in self._ledger.batches() for f in b.files if not f.moved_to)
        question = Question(
            self._table.name,
            self.folders,
            self._reachable.__contains__,
            before_ms,
            partition_fields(metadata),
            lambda location: name_hash(location) in waiting,
        )
        result = search(question, self._storage)
        beside = keep_or_refuse(self._table, self._reachable.refresh(), result.metadata_files, self._reachable)
        if beside:
            result = search(question, self._storage)
        self._recheck()
        oldest = None if result.oldest_ms is None else iso(result.oldest_ms)
        metrics = {**result.metrics(), "orphan_oldest": oldest}
        metrics |= {"metadata_files_beside": beside, "older_than": iso(before_ms)}
        return metrics | self._purge() | self._trash(result) | self._uploads()

    def _uploads(self) -> dict[str, Any]:
        # an approved list contains only files
        dry_run = self._options.dry_run or self._approved is not None
        folder = self._table.properties.get("write.data.path", f"{self._table.location.rstrip('/')}/data")
        return abort_old(storage_properties(self._table), folder, self._now_ms, dry_run=dry_run)

    def purge(self) -> dict[str, Any]:
        """Delete files that were trashed long enough ago."""
        properties, location = self._table.properties, self._table.location.rstrip("/")
        metadata = self._storage.walk(properties.get("write.metadata.path", f"{location}/metadata"))
        files = [file for file in metadata if is_table_metadata(file.location)]
        beside = keep_or_refuse(self._table, self._reachable.refresh(), files, self._reachable)
        return {"metadata_files_beside": beside} | self._purge()

    def restore(self) -> dict[str, Any]:
        """Restore trashed files that have not been deleted yet."""
        runs = set()
        metrics = {"files_to_restore": 0}
        for batch in self._batches():
            metrics["files_to_restore"] += len(batch.files)
            runs.add(batch.run)
            if not self._options.dry_run:
                self._disposal.restore(batch, batch.files, "restored")
        self._sweep(runs)
        return metrics | {"runs": sorted(runs)} | self._disposal.counts

    def _trash(self, result: SearchResult) -> dict[str, Any]:
        run = new_run(self._now_ms)
        if self._options.dry_run:
            for files in result.batches(BATCH_FILES):
                for file in files:
                    self.findings.add(_entry(file))
        else:
            for number, files in enumerate(result.batches(BATCH_FILES)):
                self._reachable.refresh()
                approved = [file for file in files if self._is_approved([_entry(file)])]
                orphans = [file for file in approved if file.location not in self._reachable]
                failpoints.reach("before_orphans_are_taken")
                batch = self._disposal.trash(orphans, run, number, self._now_ms) if orphans else None
                failpoints.reach("after_orphans_are_taken")
                # a commit may have used them between the two
                self._reachable.refresh()
                if batch is not None:
                    self._disposal.restore_live(batch, self._reachable)
        tallies: dict[str, Any] = dict(self._disposal.counts)
        how = "sentenced" if in_object_store(self._table.location) else "moved"
        if self._approved is not None:
            tallies["files_not_approved"] = self._not_approved
        return tallies | ({"run": run, "taken_by": how} if tallies["files_taken"] else {})

    def _is_approved(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        """Check whether all entries are approved; a file overwritten since then is not."""
        if self._approved is None or all(line_hash(line_of(entry)) in self._approved for entry in entries):
            return True
        self._not_approved += len(entries)
        return False

    def _purge(self) -> dict[str, Any]:
        due, waiting, runs = 0, 0, set()
        if not self._options.dry_run:
            require_hint(self._table)
        for batch in self._batches():
            if batch.at_ms > self._now_ms - int(self._options.delay * 1000):
                waiting += len(batch.files)
                continue
            due += len(batch.files)
            runs.add(batch.run)
            if batch.table_uuid != self._table.uuid:
                raise UnsupportedError(
                    f"Its UUID is {self._table.uuid}, but run {batch.run} trashed files of table {batch.table_uuid}.",
                    table=self._table.name,
                    hint="The table was recreated. Restore that run, or delete its files if they are not needed.",
                )
            entries = [_entry(file, batch.run) for file in batch.files]
            if self._options.dry_run:
                for entry in entries:
                    self.findings.add(entry)
            elif self._is_approved(entries):
                self._reachable.refresh()
                self._disposal.delete(batch, self._reachable)
        self._sweep(runs)
        trimmed = {} if self._options.dry_run else trim(self._table)
        return {"files_due": due, "files_waiting": waiting, **self._disposal.counts, **trimmed}

    def _batches(self) -> Iterator[Batch]:
        batch = None
        for batch in self._ledger.batches(self._options.run):
            yield batch
        if self._options.run and batch is None:
            raise InputError(
                f"The run {self._options.run!r} does not exist or has no files left.",
                table=self._table.name,
                hint="Use a run listed under runs in the report of a dry run of action restore.",
            )

    def _sweep(self, runs: Collection[str]) -> None:
        for run in runs if not self._options.dry_run else ():
            self._disposal.sweep(run)


def partition_fields(metadata: Mapping[str, Any]) -> set[str]:
    """Return the names of all specs' partition fields, which are parts of folder names."""
    return {part["name"] for spec in metadata["partition-specs"] for part in spec["fields"]}


def _entry(file: StoredFile | TrashedFile, deleted_of: str | None = None) -> dict[str, Any]:
    """Return a file's entry in a dry run's list, with the run that trashed it if it would be deleted for good."""
    entry = {"location": file.location, "bytes": file.bytes, "modified_ms": file.modified_ms}
    return entry if deleted_of is None else {**entry, "deleted_of": deleted_of}


def _outcome(options: RemoveOrphanFilesOptions, metrics: dict[str, Any]) -> tuple[Outcome, str | None]:
    if options.dry_run:
        return "nothing", DRY_RUN
    if failed := metrics["files_failed"]:
        return "done", f"{failed} files could not be moved or deleted; the log names them"
    if metrics.get("uploads_aborted") or any(
        metrics[f"files_{what}"] for what in ("taken", "restored", "deleted", "spared")
    ):
        return "done", None
    return "nothing", f"no file to {options.action}"
