"""The options of each job, as typed as the job itself sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError

Outcome = Literal["done", "nothing", "skipped", "unsupported", "conflict", "failed"]
Verify = Literal["auto", "full", "sample", "off"]


@dataclass(frozen=True)
class JobOptions:
    """What every job takes.

    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that make the job exit non-zero although they are not failures, such as ``skipped``.
    """

    dry_run: bool = False
    fail_on: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class MaintenanceOptions(JobOptions):
    """What every job takes that maintains tables.

    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    """

    side_tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifiedOptions(MaintenanceOptions):
    """What every job takes that publishes rewritten files.

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
class IngestOptions(JobOptions):
    """Options of ``ingest``.

    :param max_batches: micro-batches per run; 0 means until the source's end as seen at the start.
    :param parallel_tables: tables that are written at once.
    :param decode_engine: ``auto`` decodes plain Debezium JSON, and folds plain logs of databases, by DuckDB inside the
        tasks, everything else in the JVM; ``jvm`` does all in the JVM. The rows are the same.
    :param max_delete_files: outstanding equality-delete files at which a table of mode ``upsert`` takes no further
        batch until ``rewrite_delete_files`` has run, and one of mode ``auto`` merges; 0 is no limit.
    :param quarantine_table: ``namespace.name`` of the table that keeps messages which cannot be applied; default:
        ``lakecdc_quarantine`` in the target's namespace.
    :param max_quarantined_fraction: share of a batch's messages, 0 to 1, above which the table fails instead.
    """

    max_batches: int = 0
    parallel_tables: int = 4
    decode_engine: Literal["auto", "jvm"] = "auto"
    max_delete_files: int = 0
    quarantine_table: str | None = None
    max_quarantined_fraction: float = 0.1

    def __post_init__(self) -> None:
        if self.parallel_tables < 1:
            raise SpecError(f"options.parallel_tables is {self.parallel_tables}, not 1 or more.")
        if not 0 <= self.max_quarantined_fraction <= 1:
            raise SpecError(f"options.max_quarantined_fraction is {self.max_quarantined_fraction}, not 0 to 1.")


@dataclass(frozen=True)
class ReplayQuarantineOptions(IngestOptions):
    """Options of ``replay_quarantine``: those of ``ingest``, and

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
class RewriteDataFilesOptions(VerifiedOptions):
    """Options shared by ``sort_data_files`` and ``compact_data_files``.

    :param target_file_size_bytes: size aimed at; 0 takes the table's ``write.target-file-size-bytes``.
    :param max_group_bytes: bytes rewritten per commit.
    """

    target_file_size_bytes: int = 0
    max_group_bytes: int = 10 * 1024**3


@dataclass(frozen=True)
class CompactDataFilesOptions(RewriteDataFilesOptions):
    """Options of ``compact_data_files``.

    :param min_input_files: small files a partition needs before it is worth a rewrite.
    :param small_file_ratio: a file below this share of the target size is small.
    :param delete_ratio: a file with at least this share of its rows deleted is rewritten as well.
    """

    min_input_files: int = 5
    small_file_ratio: float = 0.75
    delete_ratio: float = 0.3


@dataclass(frozen=True)
class SortDataFilesOptions(RewriteDataFilesOptions):
    """Options of ``sort_data_files``.

    :param columns: sort order; empty takes the table's sort order, then its identifier fields.
    :param min_overlap_depth: average number of files that hold a key above which a partition is sorted again.
    """

    columns: tuple[str, ...] = ()
    min_overlap_depth: float = 1.5


@dataclass(frozen=True)
class RewriteManifestsOptions(MaintenanceOptions):
    """Options of ``rewrite_manifests``.

    :param min_manifests: manifests a table needs before they are rewritten.
    :param min_average_bytes: average manifest size above which nothing is done.
    """

    min_manifests: int = 8
    min_average_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class ExpireSnapshotsOptions(MaintenanceOptions):
    """Options of ``expire_snapshots``.

    :param older_than: snapshots made before this ISO-8601 moment expire; default: ``max_age`` before now.
    :param max_age: age in seconds, used without ``older_than``.
    :param retain_last: snapshots of the main branch that are kept whatever their age.
    """

    older_than: str | None = None
    max_age: float = 5 * 24 * 3600.0
    retain_last: int = 5


OPTIONS: dict[str, type[JobOptions]] = {
    "ingest": IngestOptions,
    "replay_quarantine": ReplayQuarantineOptions,
    "rewrite_delete_files": RewriteDeleteFilesOptions,
    "sort_data_files": SortDataFilesOptions,
    "compact_data_files": CompactDataFilesOptions,
    "rewrite_manifests": RewriteManifestsOptions,
    "expire_snapshots": ExpireSnapshotsOptions,
}
