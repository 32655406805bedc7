"""Options of the jobs that rewrite files, manifests and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least
from lakecdc.contract.job_options import JobOptions
from lakecdc.metadata.readers import ReaderName

Verify = Literal["auto", "full", "sample", "off"]
SpaceFillingCurve = Literal["zorder", "hilbert"]
Curve = Literal["linear", "zorder", "hilbert"]
#: storage classes in S3's API; the last two are tiers of ``INTELLIGENT_TIERING``
StorageClass = Literal[
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "ARCHIVE_ACCESS",
    "DEEP_ARCHIVE_ACCESS",
]
_MOST_CURVED = 8


def check_curve(columns: Sequence[str]) -> None:
    """Raise a :class:`SpecError` for columns that a space-filling curve does not support."""
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
        check_least(self, "options", max_runtime=0)


@dataclass(frozen=True)
class RewriteDeleteFilesOptions(VerifiedOptions):
    """Options of ``rewrite_delete_files``.

    :param position_deletes: ``merge`` rewrites position deletes too, so that each data file has its own delete file,
        and drops those that apply to nothing; ``keep`` leaves them unless equality deletes apply to the same file.
    :param min_input_files: number of a data file's position-delete files from which they are merged.
    :param branch: the branch to rewrite.
    """

    verify: Verify = "auto"
    position_deletes: Literal["merge", "keep"] = "merge"
    min_input_files: int = 2
    branch: str = "main"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, "options", min_input_files=2)


@dataclass(frozen=True)
class SetReadersOptions(JobOptions):
    """Options of ``set_readers``.

    :param readers: engines that must read the tables, such as ``snowflake`` and ``trino``.
    """

    readers: tuple[ReaderName, ...] = ()


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
    :param cold_after_days: leave files alone whose partition ended this many days ago, by its date or timestamp fields;
        0 leaves none alone. Partitions without such a field are never cold.
    :param cold_tag: leave files alone that the snapshot of this tag reaches, in tables that have the tag.
    :param cold_storage_classes: leave files alone that S3 keeps in one of these storage classes. Only files that would
        be rewritten are looked up, the newest first, at most 10,000 in a run; further ones are left alone.
    """

    branch: str = "main"
    cold_after_days: float = 0.0
    cold_tag: str | None = None
    cold_storage_classes: tuple[StorageClass, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, "options", cold_after_days=0)


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
    :param quiet_seconds: skip partitions that were written to within this many seconds; 0 skips none. Tables without
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
        check_least(self, "options", large_file_ratio=2.2, max_equality_deletes=0, quiet_seconds=0)


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
        check_least(self, "options", target_bucket_bytes=0, tolerance=1)
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
        check_least(self, "options", min_changed_ratio=0)
