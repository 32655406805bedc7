"""Assess from one table's metadata what each job would have to do.

The jobs themselves use the same rules (``lakecdc.metadata``). What metadata cannot decide for certain is left to
the job.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.live_files import live_files, oldest_day, time_fields
from airflow_provider_lakecdc.lake.tables import (
    MAIN,
    branch_snapshots,
    snapshot_facts,
    sorted_columns,
    source_position,
    specs_by_dropped_columns,
    summary_of,
)
from lakecdc.contract.errors import SourceUnavailableError, SpecError
from lakecdc.contract.expiring import ExpirePartitionsOptions, ExpireSnapshotsOptions, TagSnapshotsOptions
from lakecdc.contract.past import ExportChangesOptions
from lakecdc.contract.rewriting import (
    CompactDataFilesOptions,
    RewriteDataFilesOptions,
    RewriteDeleteFilesOptions,
    RewriteManifestsOptions,
    SortDataFilesOptions,
)
from lakecdc.metadata import names, totals, work
from lakecdc.metadata.cold import ColdRules, cold_counts, cold_remark, partition_end
from lakecdc.metadata.compaction_reasons import Reasons, no_reason_to_compact, reasons
from lakecdc.metadata.consumers import read_consumers
from lakecdc.metadata.debt import NOTHING, are_settled
from lakecdc.metadata.expiry import cutoff_ms, no_row_expires, no_snapshot_expires, old_enough, row_cutoff
from lakecdc.metadata.exports import EXPORTED, exported_snapshot
from lakecdc.metadata.file_facts import (
    UNSORTED,
    Content,
    FileFacts,
    LiveFile,
    Partitions,
    average_depth,
    by_partition,
    in_order,
    keyed_rows,
    linear_depth,
    warm_files,
)
from lakecdc.metadata.file_sizes import target_file_bytes, written_file_bytes
from lakecdc.metadata.health import MOST_FILES_OF_A_WORKER, TableHealth, measure_health
from lakecdc.metadata.manifests import (
    Manifest,
    manifest_counts,
    manifest_target_bytes,
    planned_manifests,
    refusal,
    worthwhile_specs,
)
from lakecdc.metadata.periodic_tags import UP_TO_DATE, periodic_tags
from lakecdc.metadata.work import Work
from lakecdc.object_store.s3 import storage_classes

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from lakecdc.metadata.last_write import SnapshotFacts

_EMPTY = "the table has no snapshot"


@dataclass(frozen=True)
class Idle:
    """The job has nothing to do, for the reason it would report, with metrics for the report."""

    reason: str
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Undecided:
    """Only the job can decide whether it has work."""

    reason: str


Verdict = Idle | Work | Undecided


@dataclass(frozen=True)
class OpenTable:
    """A branch of a table, whose manifests are read once for all jobs, in the order of the sort's options."""

    table: Table
    branch: str = MAIN
    order: SortDataFilesOptions = field(default_factory=SortDataFilesOptions)

    @cached_property
    def head(self) -> Snapshot | None:
        """Return the branch's newest snapshot, or None."""
        return next(branch_snapshots(self.table, self.branch), None)

    @cached_property
    def snapshots(self) -> list[SnapshotFacts]:
        """Return the branch's snapshots, newest first."""
        return [snapshot_facts(snapshot) for snapshot in branch_snapshots(self.table, self.branch)]

    @cached_property
    def manifests(self) -> list[ManifestFile]:
        """Return the head's manifests."""
        return self.head.manifests(self.table.io) if self.head else []

    @cached_property
    def is_small(self) -> bool:
        """Return whether a worker can read the manifests' files."""
        return _are_few(self.manifests)

    @cached_property
    def sorted_by(self) -> list[int] | None:
        """Return the field ids of the sort columns, see :func:`sorted_columns`."""
        return sorted_columns(self.table, self.order)

    @cached_property
    def files(self) -> list[LiveFile]:
        """Return all live files with their bounds of the sort columns."""
        return list(live_files(self.table, self.manifests, self.sorted_by or ()))

    @cached_property
    def partitions(self) -> Partitions:
        """Return facts of the data files by partition."""
        return by_partition(self.files)

    @cached_property
    def dropped(self) -> set[int]:
        """Return the partition specs whose source column was dropped."""
        return specs_by_dropped_columns(self.table)

    def cold_rules(self, options: RewriteDataFilesOptions) -> ColdRules | None:
        """Return the rules by which a job leaves files alone; None if its tag reaches too many files for a worker."""
        ref = self.table.metadata.refs.get(options.cold_tag) if options.cold_tag else None
        snapshot = self.table.snapshot_by_id(ref.snapshot_id) if ref else None
        manifests = snapshot.manifests(self.table.io) if snapshot else []
        if not _are_few(manifests):
            return None
        files = live_files(self.table, manifests)
        tagged = frozenset(str(file.location) for file in files if file.content is Content.DATA)
        fields = time_fields(self.table) if options.cold_after_days else {}
        look_up = partial(storage_classes, self.table.io.properties)
        return ColdRules(options, partial(partition_end, fields), tagged, look_up)

    @property
    def overlap_depth(self) -> float:
        """Return the table's overlap depth, without partitions of dropped columns."""
        readable = [files for scope, files in self.partitions.items() if scope[0] not in self.dropped]
        return average_depth([(linear_depth(files), keyed_rows(files)) for files in readable])

    @cached_property
    def target_file_bytes(self) -> int:
        """Return the target size of data files."""
        return target_file_bytes(self.table.properties, totals.from_summary(self.summary).bytes)

    @property
    def summary(self) -> Any:
        """Return the head's summary."""
        return summary_of(self.head) if self.head else {}

    @cached_property
    def health(self) -> TableHealth:
        """Return the read cost of the table's layout."""
        return measure_health(
            self.files,
            target_file_bytes=self.target_file_bytes,
            snapshots=len(self.table.metadata.snapshots),
            manifests=[manifest.manifest_length for manifest in self.manifests],
            overlap_depth=self.overlap_depth if self.sorted_by else None,
        )


def _are_few(manifests: Iterable[ManifestFile]) -> bool:
    counts = ((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests)
    return sum(counts) <= MOST_FILES_OF_A_WORKER


def health_of(table: Table, branch: str = MAIN) -> TableHealth | None:
    """Measure the health of a branch's head; return None if the branch has no snapshot."""
    opened = OpenTable(table, branch)
    return opened.health if opened.head else None


def assess_job(opened: OpenTable, job: str, options: Any) -> Verdict:
    """Decide whether a job has work and how much, by its options (``lakecdc.contract.options``)."""
    if job not in ASSESSORS:
        return Undecided("only the job can decide")
    if opened.head is None:
        return Idle(_EMPTY) if opened.branch == MAIN else Undecided("the branch does not exist or has no snapshot")
    try:
        return ASSESSORS[job](opened, options)
    except (SourceUnavailableError, SpecError) as error:
        # an option may be a template that only the job's task renders; the job refuses invalid ones
        return Undecided(str(error))


def _deletes(opened: OpenTable, options: RewriteDeleteFilesOptions) -> Verdict:
    if opened.summary.get("total-delete-files") == "0":
        return Idle(NOTHING)
    if not opened.is_small:
        return _too_many()
    if are_settled(opened.files, opened.table.format_version, options):
        return Idle(NOTHING)
    facts = (file for files in opened.partitions.values() for file in files)
    return work.of_delete_files(opened.health, facts, opened.table.format_version)


def _data_files(opened: OpenTable, options: CompactDataFilesOptions) -> Verdict:
    if options.add_bloom_filters and names.BLOOM_FILTER_COLUMNS in opened.table.properties:
        return Undecided("only the job can decide which files lack Bloom filters")
    if not opened.is_small or (rules := opened.cold_rules(options)) is None:
        return _too_many()
    target = options.target_file_size_bytes or opened.target_file_bytes
    large = options.large_file_ratio * (options.target_file_size_bytes or written_file_bytes(opened.table.properties))
    specs = {spec_id for spec_id, _ in opened.partitions}
    if specs & opened.dropped:
        return Undecided("the table has files of a partition spec whose column was dropped")
    if options.older_specs and specs - {opened.table.spec().spec_id}:
        return Undecided("the table has files of older partition specs to move")

    def choose(partitions: Partitions) -> list[FileFacts]:
        return [
            f for files in partitions.values() for f in reasons(files, options, target, large).worth_rewriting(files)
        ]

    if chosen := rules.choose(opened.partitions, choose, iter):
        return work.of_compaction(chosen, target)
    partitions = rules.mark(opened.partitions)
    counts = Reasons.counts(reasons(files, options, target, large) for files in partitions.values())
    return _idle(
        no_reason_to_compact(options, target, large), {"partitions_examined": len(partitions), **counts}, partitions
    )


def _idle(reason: str, metrics: dict[str, Any], partitions: Partitions) -> Idle:
    """Report that a job has nothing to do, with the cold files that it leaves alone."""
    cold = cold_counts(partitions)
    return Idle("; ".join(filter(None, (reason, cold_remark(cold)))), metrics | cold)


def _manifests(opened: OpenTable, options: RewriteManifestsOptions) -> Verdict:
    manifests = [
        Manifest(m.manifest_path, m.partition_spec_id, m.manifest_length, m.content == 1) for m in opened.manifests
    ]
    rewritable = [manifest for manifest in manifests if manifest.spec_id not in opened.dropped]
    target = manifest_target_bytes(opened.table.properties)
    if reason := refusal(rewritable, options, target):
        return Idle(reason, manifest_counts(manifests, "before"))
    planned = planned_manifests(rewritable, worthwhile_specs(rewritable, target), target)
    return work.of_manifests(rewritable, planned)


def _order(opened: OpenTable, options: SortDataFilesOptions) -> Verdict:
    if not opened.is_small or (rules := opened.cold_rules(options)) is None:
        return _too_many()
    if opened.sorted_by is None:
        return Undecided("the sort order is a curve, has transforms or a missing column")
    if not opened.sorted_by:
        return Idle(UNSORTED)
    readable = {scope: files for scope, files in opened.partitions.items() if scope[0] not in opened.dropped}

    def choose(partitions: Partitions) -> list[tuple[float, list[FileFacts]]]:
        warm = map(warm_files, partitions.values())
        return [(depth, files) for files in warm if (depth := linear_depth(files)) > options.min_overlap_depth]

    deep = rules.choose(readable, choose, lambda chosen: (file for _, files in chosen for file in files))
    marked = rules.mark(readable)
    warm = [warm_files(files) for files in marked.values()]
    depth = average_depth([(linear_depth(files), keyed_rows(files)) for files in warm])
    if deep:
        return work.of_sorting(deep, depth)
    return _idle(in_order(options), {"partitions_examined": len(readable), "overlap_depth_before": depth}, marked)


def _snapshots(opened: OpenTable, options: ExpireSnapshotsOptions) -> Verdict:
    table = opened.table
    refs = table.metadata.refs
    retained = any(r.max_ref_age_ms or r.max_snapshot_age_ms or r.min_snapshots_to_keep for r in refs.values())
    if retained or any(name.startswith(names.JOB_TAG_PREFIX) for name in refs):
        return Undecided("tags of jobs, or refs with retention, decide which snapshots expire")
    last = (itertools.islice(branch_snapshots(table, name), options.retain_last) for name in refs)
    protected = {snapshot.snapshot_id for snapshots in last for snapshot in snapshots}
    protected |= {ref.snapshot_id for ref in refs.values()}
    moments, cutoff = {s.snapshot_id: s.timestamp_ms for s in table.metadata.snapshots}, cutoff_ms(options, time.time())
    if expired := old_enough(moments, protected, cutoff):
        return work.of_expiry(len(expired))
    return Idle(no_snapshot_expires(cutoff), {"snapshots": len(moments)})


def _rows(opened: OpenTable, options: ExpirePartitionsOptions) -> Verdict:
    cutoff = row_cutoff(options, datetime.now(UTC))
    oldest = oldest_day(opened.table, opened.manifests, options.time_column)
    if cutoff is None or oldest is None or datetime(oldest.year, oldest.month, oldest.day, tzinfo=UTC) < cutoff:
        return Undecided("only the job can decide which rows are old enough")
    return Idle(no_row_expires(cutoff.isoformat()))


def _tags(opened: OpenTable, options: TagSnapshotsOptions) -> Verdict:
    if options.changes:
        return Undecided("the options change tags or branches")
    ancestors = [(s.id, s.timestamp_ms) for s in opened.snapshots]
    missing = periodic_tags(options, ancestors, opened.table.metadata.refs, datetime.now(UTC))
    return work.of_tags(len(missing)) if missing else Idle(UP_TO_DATE)


def _exports(opened: OpenTable, options: ExportChangesOptions) -> Verdict:
    undecided = Undecided("only the job can decide what to export")
    name, head = ".".join(opened.table.name()), opened.snapshots[0].id
    given = options.destinations.get(name)
    if given is None or given.table is None or options.until is not None:
        return undecided
    consumers = read_consumers(opened.table.properties)
    if options.consumer and (options.consumer not in consumers or consumers[options.consumer].snapshot_id != head):
        return undecided
    if not opened.table.catalog.table_exists(given.table):
        return undecided
    position = source_position(opened.table.catalog.load_table(given.table))
    exported = exported_snapshot(position, name, str(opened.table.metadata.table_uuid), given.table)
    return Idle(EXPORTED) if exported == head else undecided


def _too_many() -> Undecided:
    return Undecided(f"the table has more than {MOST_FILES_OF_A_WORKER} live files")


#: by job
ASSESSORS: dict[str, Callable[[OpenTable, Any], Verdict]] = {
    "rewrite_delete_files": _deletes,
    "sort_data_files": _order,
    "compact_data_files": _data_files,
    "rewrite_manifests": _manifests,
    "expire_snapshots": _snapshots,
    "expire_partitions": _rows,
    "tag_snapshots": _tags,
    "export_changes": _exports,
}
