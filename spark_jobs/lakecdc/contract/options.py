"""The options of each job, typed as in the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lakecdc.contract.approval import ApprovableOptions
from lakecdc.contract.checks import CheckingOptions
from lakecdc.contract.erasing import EraseRowsOptions
from lakecdc.contract.errors import SpecError
from lakecdc.contract.exporting import ExportChangesOptions
from lakecdc.contract.fields import check_zone, parse_moment
from lakecdc.contract.job_options import JobOptions as JobOptions
from lakecdc.contract.job_options import Outcome as Outcome
from lakecdc.contract.past import RestoreMomentOptions, Scd2Options
from lakecdc.contract.protection import RemovingOptions
from lakecdc.contract.quarantine_table import check_quarantine_table
from lakecdc.contract.reconciling import ReconcileOptions
from lakecdc.metadata.names import RESERVED_REFS

Verify = Literal["auto", "full", "sample", "off"]
SpaceFillingCurve = Literal["zorder", "hilbert"]
Curve = Literal["linear", "zorder", "hilbert"]


_MOST_CURVED = 8


def check_curve(columns: Sequence[str]) -> None:
    """Reject columns that a space-filling curve does not support.

    :raises SpecError: there are fewer than two or more than eight, or one is repeated.
    """
    if not 2 <= len(columns) <= _MOST_CURVED or len(set(columns)) < len(columns):
        raise SpecError(
            f"Cannot sort along a curve by the columns {', '.join(columns)}.",
            hint=f"Set options.columns to 2 to {_MOST_CURVED} different columns, or options.curve to 'linear'.",
        )


@dataclass(frozen=True)
class MaintenanceOptions(JobOptions):
    """Options of all maintenance jobs.

    :param side_tables: ``namespace.name`` of further tables to work on if they exist: side tables that ingestion
        creates when it needs them (``lakecdc.metadata.names.side_tables``).
    """

    side_tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishingOptions(MaintenanceOptions):
    """Options of all jobs that publish rewritten files after a proof.

    :param keep_failed_files: keep the files of a failed proof for inspection instead of deleting them; the report lists
        them, and ``remove_orphan_files`` removes them once they are old enough.
    """

    keep_failed_files: bool = False


@dataclass(frozen=True)
class VerifiedOptions(PublishingOptions):
    """Options of all jobs whose proof can be limited.

    :param verify: what is proven before the commit: all files, a stated sample, or nothing; ``auto`` means all files
        unless that costs more than the work itself.
    :param verify_off_reason: the reason for ``off``, which requires one; the report shows it.
    :param max_runtime: seconds after which no further group is started; 0 means no limit.
    """

    verify: Verify = "full"
    verify_off_reason: str | None = None
    max_runtime: float = 0.0

    def __post_init__(self) -> None:
        if self.verify == "off" and not (self.verify_off_reason or "").strip():
            raise SpecError(
                "options.verify is 'off' without a reason.",
                hint="Set options.verify_off_reason to the reason; the report shows it.",
            )
        if not self.max_runtime >= 0:
            raise SpecError(f"options.max_runtime is {self.max_runtime}, not 0 or more seconds.")


@dataclass(frozen=True)
class FeedingOptions(JobOptions):
    """Options of the jobs that feed tables.

    :param max_batches: micro-batches per run; 0 means until the source's end at the start.
    :param parallel_tables: tables that are written in parallel.
    :param max_delete_files: limit of equality-delete files at which a table of mode ``upsert`` takes no further batch
        until ``rewrite_delete_files`` has run, and one of mode ``auto`` merges; 0 means no limit.
    :param quarantine_table: ``namespace.name`` of the table for messages that cannot be applied; default:
        ``lakecdc_quarantine`` in the target's namespace. ``{namespace}`` and ``{table}`` are replaced by the target's,
        such as in ``restricted.{table}_quarantine``.
    :param max_quarantined_fraction: share of a batch's messages, 0 to 1, above which the table fails instead.
    :param report_values: show values of rows in reports and logs if they are the reason of a failure.
    """

    max_batches: int = 0
    parallel_tables: int = 4
    max_delete_files: int = 0
    quarantine_table: str | None = None
    max_quarantined_fraction: float = 0.1
    report_values: bool = False

    def __post_init__(self) -> None:
        if self.parallel_tables < 1:
            raise SpecError(f"options.parallel_tables is {self.parallel_tables}, not 1 or more.")
        check_quarantine_table(self.quarantine_table)
        if not 0 <= self.max_quarantined_fraction <= 1:
            raise SpecError(f"options.max_quarantined_fraction is {self.max_quarantined_fraction}, not 0 to 1.")


@dataclass(frozen=True)
class IngestOptions(FeedingOptions):
    """Options of ``ingest``.

    :param reload: targets, ``namespace.name``, to load in full again, ``*`` for all: readers see the old rows until the
        new ones replace them in one commit. Only for sources of type ``postgres`` and ``mysql``.
    """

    reload: tuple[str, ...] = ()

    def reloads(self, table: str) -> bool:
        """Return whether a target is loaded in full again."""
        return table in self.reload or "*" in self.reload


@dataclass(frozen=True)
class ReplayQuarantineOptions(FeedingOptions):
    """Options of ``replay_quarantine``.

    :param rules: replay only messages that broke one of these rules, such as ``type``; default: all.
    """

    rules: tuple[str, ...] = ()
    max_quarantined_fraction: float = 1.0


@dataclass(frozen=True)
class RewriteDeleteFilesOptions(VerifiedOptions):
    """Options of ``rewrite_delete_files``.

    :param engine: ``exact`` lets Iceberg's reader mark deleted rows, ``join`` matches keys in Spark, ``native`` reads
        key columns with Arrow in Python tasks and joins what it cannot read, ``auto`` chooses by the number of rows and
        deletes and the types of the keys.
    :param position_deletes: ``merge`` rewrites position deletes too, so that each data file has its own delete file,
        and drops those that apply to nothing; ``keep`` leaves them unless equality deletes apply to the same file.
    :param min_input_files: number of a data file's position-delete files from which they are merged.
    :param branch: the branch to rewrite.
    """

    verify: Verify = "auto"
    engine: Literal["auto", "exact", "join", "native"] = "auto"
    position_deletes: Literal["merge", "keep"] = "merge"
    min_input_files: int = 2
    branch: str = "main"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_input_files < 2:
            raise SpecError(f"options.min_input_files is {self.min_input_files}, not 2 or more.")


@dataclass(frozen=True)
class RewritingOptions(VerifiedOptions):
    """Options of all jobs that rewrite data files.

    :param target_file_size_bytes: target size of files; 0 means the table's ``write.target-file-size-bytes``, or if it
        is not set, a size that suits the table's.
    :param max_group_bytes: bytes rewritten per commit.
    """

    target_file_size_bytes: int = 0
    max_group_bytes: int = 10 * 1024**3


@dataclass(frozen=True)
class RewriteDataFilesOptions(RewritingOptions):
    """Options of ``sort_data_files`` and ``compact_data_files``.

    :param branch: the branch to rewrite.
    """

    branch: str = "main"


@dataclass(frozen=True)
class CompactDataFilesOptions(RewriteDataFilesOptions):
    """Options of ``compact_data_files``.

    :param min_input_files: number of a partition's small files from which they are compacted.
    :param small_file_ratio: files below this share of the target size are small.
    :param delete_ratio: files with at least this share of deleted rows are rewritten too.
    :param large_file_ratio: files above this multiple of the target size are split; at least 2.2, since written files
        may have twice the target size.
    :param max_equality_deletes: limit of equality-delete files that apply to a data file, above which it is rewritten;
        for deletes that ``rewrite_delete_files`` must skip. 0 means no limit.
    :param quiet_seconds: skip partitions with writes in the last so many seconds; 0 skips none. Tables without
        partitions are never skipped.
    :param older_specs: rewrite all files of older partition specs to the current one.
    :param add_bloom_filters: rewrite also files without the Bloom filters of the table's property
        ``lakecdc.layout.bloom-filter-columns``.
    """

    min_input_files: int = 5
    small_file_ratio: float = 0.75
    delete_ratio: float = 0.3
    large_file_ratio: float = 2.5
    max_equality_deletes: int = 0
    quiet_seconds: float = 0.0
    older_specs: bool = False
    add_bloom_filters: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.large_file_ratio >= 2.2:
            raise SpecError(f"options.large_file_ratio is {self.large_file_ratio}, not 2.2 or more.")
        if self.max_equality_deletes < 0:
            raise SpecError(f"options.max_equality_deletes is {self.max_equality_deletes}, not 0 or more.")
        if not self.quiet_seconds >= 0:
            raise SpecError(f"options.quiet_seconds is {self.quiet_seconds}, not 0 or more seconds.")


@dataclass(frozen=True)
class SortDataFilesOptions(RewriteDataFilesOptions):
    """Options of ``sort_data_files``.

    :param columns: sort order; default: the table's last sort, else its sort order, else its identifier fields.
    :param curve: ``linear`` sorts by the first column, then the second, and so on; ``hilbert`` and ``zorder`` sort
        along a curve through the space of all columns, so that filters on each of them skip files. Default: the
        curve of the table's last sort if ``columns`` is empty, else ``linear``.
    :param min_overlap_depth: average number of files with the same key above which a partition is sorted again; with a
        curve, a multiple of that number for as many files in a grid.
    """

    columns: tuple[str, ...] = ()
    curve: Curve | None = None
    min_overlap_depth: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.curve not in (None, "linear") and self.columns:
            check_curve(self.columns)


@dataclass(frozen=True)
class RebucketOptions(RewritingOptions):
    """Options of ``rebucket``.

    :param target_bucket_bytes: target size of a bucket, or of one in each partition of the other fields; 0 means four
        times the target size of a file.
    :param tolerance: the number of buckets grows if they are on average larger than the target by this factor, and
        shrinks if they are smaller than half of it by this factor; at least 1.
    :param min_buckets: lower limit for shrinking.
    :param max_buckets: upper limit for growing.
    """

    target_bucket_bytes: int = 0
    tolerance: float = 1.5
    min_buckets: int = 1
    max_buckets: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_bucket_bytes < 0:
            raise SpecError(f"options.target_bucket_bytes is {self.target_bucket_bytes}, not 0 or more.")
        if not self.tolerance >= 1:
            raise SpecError(f"options.tolerance is {self.tolerance}, not 1 or more.")
        if not 1 <= self.min_buckets <= self.max_buckets:
            raise SpecError(
                f"options.min_buckets is {self.min_buckets} and options.max_buckets is {self.max_buckets}: "
                "they must be 1 or more, and the first not above the second."
            )


@dataclass(frozen=True)
class RewriteManifestsOptions(PublishingOptions):
    """Options of ``rewrite_manifests``.

    :param min_manifests: number of manifests from which they are rewritten.
    :param min_average_bytes: average size of manifests above which they are not rewritten.
    """

    min_manifests: int = 8
    min_average_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class ComputeStatisticsOptions(MaintenanceOptions):
    """Options of ``compute_statistics``.

    :param columns: columns to count distinct values of; default: the identifier fields and the sort columns.
    :param min_changed_ratio: share of changed rows above which statistics are stale.
    """

    columns: tuple[str, ...] = ()
    min_changed_ratio: float = 0.1

    def __post_init__(self) -> None:
        if not self.min_changed_ratio >= 0:
            raise SpecError(f"options.min_changed_ratio is {self.min_changed_ratio}, not 0 or more.")


@dataclass(frozen=True)
class RefChange:
    """A change of a tag or branch.

    :param action: ``create`` it, ``move`` it to another snapshot, ``fast_forward`` a branch to a descendant of its
        snapshot, or ``drop`` it.
    :param name: name of the tag or branch; ``main`` and names that begin with ``lakecdc`` are reserved, except that
        ``main`` may be fast-forwarded.
    :param kind: what to ``create``.
    :param to: a snapshot id, a tag or branch, or an ISO-8601 timestamp, which means the newest snapshot of ``main`` at
        that time; default: the head of ``main``.
    :param max_age: seconds after which expiry may drop a created or moved tag or branch; default: never.
    """

    action: Literal["create", "move", "fast_forward", "drop"]
    name: str
    kind: Literal["tag", "branch"] = "tag"
    to: str | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        reserved = self.name.startswith(RESERVED_REFS) or (self.name == "main" and self.action != "fast_forward")
        if reserved or not self.name:
            raise SpecError(
                f"The name {self.name!r} of a tag or branch is reserved.",
                hint="Names that begin with lakecdc are reserved, and main can only be fast-forwarded.",
            )
        if self.action in ("drop", "fast_forward") and self.max_age is not None:
            raise SpecError(f"Action {self.action!r} of ref {self.name!r} does not accept max_age.")
        if self.action == "drop" and self.to is not None:
            raise SpecError(f"Action 'drop' of ref {self.name!r} does not accept a snapshot.")
        if self.max_age is not None and not self.max_age > 0:
            raise SpecError(f"max_age of {self.name!r} is {self.max_age}, not above 0 seconds.")


@dataclass(frozen=True)
class TagSnapshotsOptions(MaintenanceOptions):
    """Options of ``tag_snapshots``.

    :param days: number of past days with a tag ``lakecdc-day-2026-01-31`` on the last snapshot of ``main`` at the end
        of the day; 0 means none.
    :param months: number of past months with a tag ``lakecdc-month-2026-01``; 0 means none.
    :param zone: time zone of days and months, such as ``Europe/Berlin``.
    :param changes: further changes of tags and branches, in one atomic commit with the rest.
    """

    days: int = 7
    months: int = 0
    zone: str = "UTC"
    changes: tuple[RefChange, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("days", self.days), ("months", self.months)):
            if value < 0:
                raise SpecError(f"options.{name} is {value}, not 0 or more.")
        check_zone(self.zone, "options.zone")
        twice = [name for name, n in Counter(change.name for change in self.changes).items() if n > 1]
        if twice:
            raise SpecError(f"options.changes names {twice[0]!r} more than once.")


@dataclass(frozen=True)
class ExpireSnapshotsOptions(RemovingOptions, MaintenanceOptions):
    """Options of ``expire_snapshots``.

    :param older_than: ISO-8601 timestamp; older snapshots expire. Default: ``max_age`` before now.
    :param max_age: seconds; used without ``older_than``.
    :param retain_last: number of the newest snapshots of the main branch that never expire.
    """

    older_than: str | None = None
    max_age: float = 5 * 24 * 3600.0
    retain_last: int = 5


@dataclass(frozen=True)
class RollbackTablesOptions(JobOptions):
    """Options of ``rollback_tables``. Without ``to`` the job changes nothing and fails.

    :param to: a snapshot id, a tag, a branch, or an ISO-8601 timestamp, which means the newest snapshot of ``main`` at
        that time.
    :param history_tables: history table by table; it is rolled back to the matching state.
    :param keep_for: seconds for which a tag keeps the undone state.
    :param expired_rows: roll back even beyond a removal of old rows, which restores them.
    """

    to: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    keep_for: float = 30 * 24 * 3600.0
    expired_rows: bool = False

    def __post_init__(self) -> None:
        if not self.keep_for > 0:
            raise SpecError(f"options.keep_for is {self.keep_for}, not above 0 seconds.")


@dataclass(frozen=True)
class CheckTablesOptions(CheckingOptions, JobOptions):
    """Options of ``check_tables``. With ``dry_run`` the checks are only validated against the columns."""


@dataclass(frozen=True)
class ExpirePartitionsOptions(ApprovableOptions, RemovingOptions):
    """Options of ``expire_partitions``. Without a column and an age the job changes nothing and fails.

    :param time_column: date or timestamp column that decides which rows are old.
    :param max_age: seconds; rows from before the last midnight (UTC) of that age are removed. 0 means no age.
    :param older_than: ISO-8601 timestamp; older rows are removed. Replaces ``max_age``.
    :param max_partitions: maximum of partitions to remove per run, the oldest first: values of the partition field on
        the column, whatever other fields there are, or days if there is none.
    :param allow_row_deletes: remove rows also from files that have younger rows too, by Spark's ``DELETE``, which reads
        these files, and rewrites them unless the table's ``write.delete.mode`` is ``merge-on-read``.
    """

    time_column: str | None = None
    max_age: float = 0.0
    older_than: str | None = None
    max_partitions: int = 100
    allow_row_deletes: bool = False

    def __post_init__(self) -> None:
        if not self.max_age >= 0:
            raise SpecError(f"options.max_age is {self.max_age}, not 0 or more seconds.")
        if self.max_age and self.older_than is not None:
            raise SpecError("options.max_age and options.older_than are both set.", hint="Remove one of them.")
        if self.older_than is not None:
            parse_moment(self.older_than, "options.older_than")
        if self.max_partitions < 1:
            raise SpecError(f"options.max_partitions is {self.max_partitions}, not 1 or more.")


@dataclass(frozen=True)
class Dismissal:
    """A dismissal of quarantined messages, which are then not replayed.

    :param table: the target, ``namespace.name``.
    :param seen_before: ISO-8601 timestamp; only messages first seen before it are dismissed, so that unseen messages
        stay.
    :param because: the reason; the report shows it.
    :param rules: only messages that broke one of these rules, such as ``type``; default: all.
    """

    table: str
    seen_before: str
    because: str
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_moment(self.seen_before, f"seen_before of the dismissal for {self.table!r}")
        if not self.because.strip():
            raise SpecError(
                f"The dismissal for {self.table!r} has no reason.",
                hint="Set because to the reason; the report shows it.",
            )


@dataclass(frozen=True)
class CleanSideTablesOptions(RemovingOptions):
    """Options of ``clean_side_tables``.

    :param quarantine_table: as for ``ingest``.
    :param dismiss: quarantined messages to drop without a replay; only for tables that the run cleans.
    :param forget_tables: former targets, whose rows are removed from the side tables that they shared with others.
    """

    quarantine_table: str | None = None
    dismiss: tuple[Dismissal, ...] = ()
    forget_tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_quarantine_table(self.quarantine_table)


#: seconds; writers of other engines may stage files long before their commit, and clocks differ
_YOUNGEST_ORPHAN = 3 * 24 * 3600.0
_SHORTEST_DELAY = 24 * 3600.0


@dataclass(frozen=True)
class RemoveOrphanFilesOptions(ApprovableOptions, RemovingOptions, MaintenanceOptions):
    """Options of ``remove_orphan_files``. A dry run by default: only ``"dry_run": false`` changes anything.

    :param dry_run: find and count, change nothing, whatever the action.
    :param action: ``remove`` removes orphan files reversibly, and deletes those that earlier runs removed; ``purge``
        only deletes these; ``restore`` brings them back unless they are deleted.
    :param min_age: seconds since a file was written before it can be an orphan; at least three days.
    :param longest_job: duration in seconds of the longest job that writes to the tables; files younger than twice that
        are skipped too.
    :param delay: seconds between removal and deletion; at least a day.
    :param run: id of a single run to restore or purge, from its report; default: all.
    """

    dry_run: bool = True
    action: Literal["remove", "restore", "purge"] = "remove"
    min_age: float = _YOUNGEST_ORPHAN
    longest_job: float = 24 * 3600.0
    delay: float = 7 * 24 * 3600.0
    run: str | None = None

    def __post_init__(self) -> None:
        if not self.min_age >= _YOUNGEST_ORPHAN:
            raise SpecError(
                f"options.min_age is {self.min_age}, less than {_YOUNGEST_ORPHAN:.0f} seconds, three days.",
                hint="Use a longer age: younger files may belong to writers that have not committed yet.",
            )
        if not self.longest_job >= 0:
            raise SpecError(f"options.longest_job is {self.longest_job}, not 0 or more seconds.")
        if not self.delay >= _SHORTEST_DELAY:
            raise SpecError(f"options.delay is {self.delay}, less than {_SHORTEST_DELAY:.0f} seconds, a day.")
        if self.run and self.action == "remove":
            raise SpecError("options.run is for restore and purge, but options.action is 'remove'.")
        if self.approved is not None and self.action == "restore":
            raise SpecError("options.approved is for removals, but options.action is 'restore'.")

    def seconds_kept(self) -> float:
        """Return the age below which files are kept."""
        return max(self.min_age, 2 * self.longest_job)


@dataclass(frozen=True)
class Step:
    """A step of ``govern``: a maintenance job.

    :param job: name of the job; not one that feeds tables, and not ``govern``.
    :param tables: ``namespace.name`` of each table to work on; default: the tables of the spec.
    :param options: options of the job.
    """

    job: str
    tables: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GovernOptions(JobOptions):
    """Options of ``govern``.

    :param dry_run: run all steps dry; otherwise each step follows its own option.
    :param steps: the steps in the order of work.
    """

    steps: tuple[Step, ...] = ()


OPTIONS: dict[str, type[JobOptions]] = {
    "ingest": IngestOptions,
    "replay_quarantine": ReplayQuarantineOptions,
    "rewrite_delete_files": RewriteDeleteFilesOptions,
    "sort_data_files": SortDataFilesOptions,
    "compact_data_files": CompactDataFilesOptions,
    "rebucket": RebucketOptions,
    "rewrite_manifests": RewriteManifestsOptions,
    "compute_statistics": ComputeStatisticsOptions,
    "tag_snapshots": TagSnapshotsOptions,
    "expire_snapshots": ExpireSnapshotsOptions,
    "expire_partitions": ExpirePartitionsOptions,
    "remove_orphan_files": RemoveOrphanFilesOptions,
    "clean_side_tables": CleanSideTablesOptions,
    "rollback_tables": RollbackTablesOptions,
    "reconcile": ReconcileOptions,
    "export_changes": ExportChangesOptions,
    "check_tables": CheckTablesOptions,
    "restore_moment": RestoreMomentOptions,
    "scd2": Scd2Options,
    "erase_rows": EraseRowsOptions,
    "govern": GovernOptions,
}
