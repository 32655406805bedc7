"""The options of each job, as typed as the job itself sees them."""

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
    """Refuse columns that no curve can be laid through.

    :raises SpecError: they are fewer than two, more than eight, or named twice.
    """
    if not 2 <= len(columns) <= _MOST_CURVED or len(set(columns)) < len(columns):
        raise SpecError(
            f"A curve cannot be laid through the columns {', '.join(columns)}.",
            hint=f"Give options.columns from 2 to {_MOST_CURVED} different columns, or options.curve 'linear'.",
        )


@dataclass(frozen=True)
class MaintenanceOptions(JobOptions):
    """What every job takes that maintains tables.

    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    """

    side_tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishingOptions(MaintenanceOptions):
    """What every job takes that publishes rewritten files after a proof.

    :param keep_failed_files: leave the files of a failed proof for inspection instead of deleting them; the report says
        where they are, and ``remove_orphan_files`` takes them once they are old enough.
    """

    keep_failed_files: bool = False


@dataclass(frozen=True)
class VerifiedOptions(PublishingOptions):
    """What every job takes of which one may choose how much it proves.

    :param verify: how much is proven before the commit: all files, a stated sample, or nothing; ``auto`` is all files
        unless that costs more than the work itself.
    :param verify_off_reason: why ``off``; required then and kept in the report.
    :param max_runtime: seconds after which no further group is begun; 0 is no limit.
    """

    verify: Verify = "full"
    verify_off_reason: str | None = None
    max_runtime: float = 0.0

    def __post_init__(self) -> None:
        if self.verify == "off" and not (self.verify_off_reason or "").strip():
            raise SpecError(
                "options.verify is 'off' without a reason.",
                hint="Say why in options.verify_off_reason; it is kept in the report.",
            )
        if not self.max_runtime >= 0:
            raise SpecError(f"options.max_runtime is {self.max_runtime}, not 0 or more seconds.")


@dataclass(frozen=True)
class FeedingOptions(JobOptions):
    """What the jobs take that feed tables.

    :param max_batches: micro-batches per run; 0 means until the source's end as seen at the start.
    :param parallel_tables: tables that are written at once.
    :param decode_engine: ``auto`` decodes plain Debezium JSON, and folds plain logs of databases, by DuckDB inside the
        tasks, everything else in the JVM; ``jvm`` does all in the JVM. The rows are the same.
    :param max_delete_files: outstanding equality-delete files at which a table of mode ``upsert`` takes no further
        batch until ``rewrite_delete_files`` has run, and one of mode ``auto`` merges; 0 is no limit.
    :param quarantine_table: ``namespace.name`` of the table that keeps messages which cannot be applied; default:
        ``lakecdc_quarantine`` in the target's namespace. ``{namespace}`` and ``{table}`` in it are the target's, so
        that each may have one of its own, such as ``restricted.{table}_quarantine``.
    :param max_quarantined_fraction: share of a batch's messages, 0 to 1, above which the table fails instead.
    :param report_values: show values of rows in reports and logs, where one is the reason of a failure.
    """

    max_batches: int = 0
    parallel_tables: int = 4
    decode_engine: Literal["auto", "jvm"] = "auto"
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

    :param reload: targets, ``namespace.name``, that this run loads in full once more, ``*`` for all: readers have the
        rows of before until those of the load take their place in one commit. Only of the types ``postgres`` and
        ``mysql``.
    """

    reload: tuple[str, ...] = ()

    def reloads(self, table: str) -> bool:
        """Whether a target is loaded in full once more."""
        return table in self.reload or "*" in self.reload


@dataclass(frozen=True)
class ReplayQuarantineOptions(FeedingOptions):
    """Options of ``replay_quarantine``.

    :param rules: enter only messages that broke one of these rules again, such as ``type``; default: all.
    """

    rules: tuple[str, ...] = ()
    max_quarantined_fraction: float = 1.0


@dataclass(frozen=True)
class RewriteDeleteFilesOptions(VerifiedOptions):
    """Options of ``rewrite_delete_files``.

    :param engine: ``exact`` lets Iceberg's reader mark deleted rows, ``join`` matches keys in Spark, ``native`` reads
        key columns with Arrow in Python tasks and joins what it cannot read, ``auto`` chooses from the number of rows
        and deletes and the types of the keys.
    :param position_deletes: ``merge`` rewrites position deletes too, so that each data file has one delete file of its
        own, and drops those that apply to nothing; ``keep`` leaves them unless equality deletes hit the same file.
    :param min_input_files: position-delete files of one data file from which on they are merged.
    :param branch: branch to work on.
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
    """What every job takes that rewrites data files.

    :param target_file_size_bytes: size aimed at; 0 takes the table's ``write.target-file-size-bytes``, or without
        that what suits the table's size.
    :param max_group_bytes: bytes rewritten per commit.
    """

    target_file_size_bytes: int = 0
    max_group_bytes: int = 10 * 1024**3


@dataclass(frozen=True)
class RewriteDataFilesOptions(RewritingOptions):
    """Options shared by ``sort_data_files`` and ``compact_data_files``.

    :param branch: branch to work on.
    """

    branch: str = "main"


@dataclass(frozen=True)
class CompactDataFilesOptions(RewriteDataFilesOptions):
    """Options of ``compact_data_files``.

    :param min_input_files: small files a partition needs before it is worth a rewrite.
    :param small_file_ratio: a file below this share of the target size is small.
    :param delete_ratio: a file with at least this share of its rows deleted is rewritten as well.
    :param large_file_ratio: a file above this multiple of the target size is split; at least 2.2, since a file may be
        written twice as large as the target.
    :param max_equality_deletes: equality-delete files that may apply to a data file before it is rewritten, for deletes
        that ``rewrite_delete_files`` leaves; 0 is no limit.
    :param quiet_seconds: partitions written to within that many seconds are left alone; 0 waits for none. A table
        without partitions is not left alone.
    :param older_specs: move the rows of all files of older partition specs to the current one.
    :param add_bloom_filters: rewrite also files that lack Bloom filters which the table's property
        ``lakecdc.layout.bloom-filter-columns`` asks for.
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

    :param columns: sort order; empty takes what the table was last sorted by, then its sort order, then its identifier
        fields.
    :param curve: ``linear`` sorts by the first column, then by the second, and so on; ``hilbert`` and ``zorder`` lay
        the rows along a curve through the space of all columns, so that files can be left out by each of them.
        Default: the curve that the table was last sorted by, where ``columns`` is empty; else ``linear``.
    :param min_overlap_depth: average number of files that hold a key above which a partition is sorted again; along a
        curve, times that of as many files in a grid.
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

    :param target_bucket_bytes: size aimed at of a bucket, or of one in each partition of the other fields; 0 is four
        times the target size of a file.
    :param tolerance: the number of buckets grows once they are so many times as large as the target on average, and
        shrinks once they are so many times as small as half of it; at least 1.
    :param min_buckets: the number does not shrink below this.
    :param max_buckets: the number does not grow above this.
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
                f"options.min_buckets is {self.min_buckets} and options.max_buckets {self.max_buckets}: "
                "they must be 1 or more, and the first no more than the second."
            )


@dataclass(frozen=True)
class RewriteManifestsOptions(PublishingOptions):
    """Options of ``rewrite_manifests``.

    :param min_manifests: manifests a table needs before they are rewritten.
    :param min_average_bytes: average manifest size above which nothing is done.
    """

    min_manifests: int = 8
    min_average_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class ComputeStatisticsOptions(MaintenanceOptions):
    """Options of ``compute_statistics``.

    :param columns: columns whose distinct values are counted; empty takes the identifier fields and the columns that
        the table is sorted by.
    :param min_changed_ratio: share of the table's rows that may have changed before statistics are stale.
    """

    columns: tuple[str, ...] = ()
    min_changed_ratio: float = 0.1

    def __post_init__(self) -> None:
        if not self.min_changed_ratio >= 0:
            raise SpecError(f"options.min_changed_ratio is {self.min_changed_ratio}, not 0 or more.")


@dataclass(frozen=True)
class RefChange:
    """One change of a tag or branch.

    :param action: ``create`` it, ``move`` it to another snapshot, ``fast_forward`` a branch to a snapshot that descends
        from its own, or ``drop`` it.
    :param name: of the tag or branch; names that begin with ``lakecdc`` and ``main`` are reserved, except that ``main``
        may be fast-forwarded.
    :param kind: what ``create`` makes.
    :param to: a snapshot id, a tag or branch, or an ISO-8601 moment, which stands for the newest snapshot of ``main``
        by then; default: the head of ``main``.
    :param max_age: seconds from now after which expiry may drop a created or moved tag or branch; default: never.
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
                hint="lakecdc-… and lakecdc_… are lakecdc's own; main can only be fast-forwarded.",
            )
        if self.action in ("drop", "fast_forward") and self.max_age is not None:
            raise SpecError(f"{self.action} of {self.name!r} takes no max_age.")
        if self.action == "drop" and self.to is not None:
            raise SpecError(f"drop of {self.name!r} takes no snapshot.")
        if self.max_age is not None and not self.max_age > 0:
            raise SpecError(f"max_age of {self.name!r} is {self.max_age}, not above 0 seconds.")


@dataclass(frozen=True)
class TagSnapshotsOptions(MaintenanceOptions):
    """Options of ``tag_snapshots``.

    :param days: tags ``lakecdc-day-2026-01-31`` of so many past days are kept, each on the last snapshot that ``main``
        had by the end of the day; 0 keeps none.
    :param months: tags ``lakecdc-month-2026-01`` of so many past months; 0 keeps none.
    :param zone: time zone whose days and months are meant, such as ``Europe/Berlin``.
    :param changes: what else to do with tags and branches, all or nothing, in one commit with the rest.
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

    :param older_than: snapshots made before this ISO-8601 moment expire; default: ``max_age`` before now.
    :param max_age: age in seconds, used without ``older_than``.
    :param retain_last: snapshots of the main branch that are kept whatever their age.
    """

    older_than: str | None = None
    max_age: float = 5 * 24 * 3600.0
    retain_last: int = 5


@dataclass(frozen=True)
class RollbackTablesOptions(JobOptions):
    """Options of ``rollback_tables``. Without ``to`` nothing is changed: the job refuses to guess.

    :param to: the id of a snapshot, a tag, a branch, or an ISO-8601 moment, which stands for the newest snapshot that
        ``main`` had by then.
    :param history_tables: by table, its history table, which is set to the state that goes with it.
    :param keep_for: seconds for which a tag keeps what the table was before.
    :param expired_rows: set it back also beyond a removal of old rows, which brings these back.
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
    """Options of ``check_tables``. With ``dry_run`` checks are held against the columns, and no row is read."""


@dataclass(frozen=True)
class ExpirePartitionsOptions(ApprovableOptions, RemovingOptions):
    """Options of ``expire_partitions``. Without a column and an age nothing is removed: the job refuses to guess.

    :param time_column: column of dates or moments whose older rows are removed.
    :param max_age: seconds; rows from before the last midnight (UTC) that is as long ago are removed. 0 is no age.
    :param older_than: rows from before this ISO-8601 moment are removed, instead of ``max_age``.
    :param max_partitions: partitions that one run removes at most, the oldest first: values of the partition field on
        the column, whatever other fields there are beside it, or days if there is none.
    :param allow_row_deletes: remove rows also from files that hold rows which stay, by Spark's ``DELETE``, which reads
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
            raise SpecError("options.max_age and options.older_than are both set.", hint="Leave one of them out.")
        if self.older_than is not None:
            parse_moment(self.older_than, "options.older_than")
        if self.max_partitions < 1:
            raise SpecError(f"options.max_partitions is {self.max_partitions}, not 1 or more.")


@dataclass(frozen=True)
class Dismissal:
    """A person's word that messages in quarantine will not be replayed.

    :param table: the target, ``namespace.name``.
    :param seen_before: only messages that were first seen before this ISO-8601 moment, so that nobody dismisses what
        nobody has looked at.
    :param because: why; kept in the report.
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
                f"The dismissal for {self.table!r} has no reason.", hint="Say in because why; it is kept in the report."
            )


@dataclass(frozen=True)
class CleanSideTablesOptions(RemovingOptions):
    """Options of ``clean_side_tables``.

    :param quarantine_table: as for ``ingest``.
    :param dismiss: messages in quarantine that nobody wants to replay; those of tables that this run does not clean
        stay.
    :param forget_tables: targets that exist no more, whose rows go from the tables that cleaned ones share with them.
    """

    quarantine_table: str | None = None
    dismiss: tuple[Dismissal, ...] = ()
    forget_tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_quarantine_table(self.quarantine_table)


#: seconds; writers of other engines stage files for long before they commit them, and clocks differ
_YOUNGEST_ORPHAN = 3 * 24 * 3600.0
_SHORTEST_DELAY = 24 * 3600.0


@dataclass(frozen=True)
class RemoveOrphanFilesOptions(ApprovableOptions, RemovingOptions, MaintenanceOptions):
    """Options of ``remove_orphan_files``. It is dry by default: only ``"dry_run": false`` changes anything.

    :param dry_run: look and count, change nothing, whatever the action.
    :param action: ``remove`` takes orphans away so that they can come back, and deletes what earlier runs took away;
        ``purge`` only deletes that; ``restore`` brings back what has not been deleted.
    :param min_age: seconds since a file was written before it can be an orphan; not less than three days.
    :param longest_job: seconds that the longest job takes which writes to the tables; younger files than twice that are
        left alone too.
    :param delay: seconds between taking away and deleting; not less than a day.
    :param run: id of the one run to restore or purge, as its report tells; default: all.
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
                hint="Younger files may belong to writers that have not committed yet.",
            )
        if not self.longest_job >= 0:
            raise SpecError(f"options.longest_job is {self.longest_job}, not 0 or more seconds.")
        if not self.delay >= _SHORTEST_DELAY:
            raise SpecError(f"options.delay is {self.delay}, less than {_SHORTEST_DELAY:.0f} seconds, a day.")
        if self.run and self.action == "remove":
            raise SpecError("options.run names a run to restore or purge, and options.action is 'remove'.")
        if self.approved is not None and self.action == "restore":
            raise SpecError("options.approved is of what is taken away, and options.action is 'restore'.")

    def seconds_kept(self) -> float:
        """Age up to which files are left alone."""
        return max(self.min_age, 2 * self.longest_job)


@dataclass(frozen=True)
class Step:
    """One step of ``govern``: a job that maintains tables.

    :param job: its name; none that feeds tables, nor ``govern``.
    :param tables: ``namespace.name`` of each table to work on; default: those of the spec.
    :param options: the job's own options.
    """

    job: str
    tables: tuple[str, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GovernOptions(JobOptions):
    """Options of ``govern``.

    :param dry_run: all steps plan and measure and change nothing; otherwise each goes by its own option.
    :param steps: what to do, in the order of work.
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
