"""The options of each job, typed as in the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.checks import CheckingOptions
from lakecdc.contract.expiring import (
    CleanSideTablesOptions,
    EraseRowsOptions,
    ExpirePartitionsOptions,
    ExpireSnapshotsOptions,
    RemoveOrphanFilesOptions,
    RollbackTablesOptions,
    TagSnapshotsOptions,
)
from lakecdc.contract.feeding import IngestOptions, ReconcileOptions, ReplayQuarantineOptions
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.past import ExportChangesOptions, RebuildKeysOptions, RestoreMomentOptions, Scd2Options
from lakecdc.contract.rewriting import (
    CompactDataFilesOptions,
    ComputeStatisticsOptions,
    RebucketOptions,
    RewriteDeleteFilesOptions,
    RewriteManifestsOptions,
    SetReadersOptions,
    SortDataFilesOptions,
)


@dataclass(frozen=True)
class CheckTablesOptions(CheckingOptions, JobOptions):
    """Options of ``check_tables``. With ``dry_run`` the checks are only validated against the columns."""


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
    "set_readers": SetReadersOptions,
    "reconcile": ReconcileOptions,
    "export_changes": ExportChangesOptions,
    "check_tables": CheckTablesOptions,
    "restore_moment": RestoreMomentOptions,
    "scd2": Scd2Options,
    "rebuild_keys": RebuildKeysOptions,
    "erase_rows": EraseRowsOptions,
    "govern": GovernOptions,
}
