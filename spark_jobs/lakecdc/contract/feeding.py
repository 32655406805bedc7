"""Options of the jobs with a source: ``ingest``, ``replay_quarantine`` and ``reconcile``."""

from __future__ import annotations

from dataclasses import dataclass

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least
from lakecdc.contract.job_options import JobOptions, Outcome, check_quarantine_table

_MOST_RANGES = 256


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
        check_least(self, "options", parallel_tables=1)
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
class ReconcileOptions(JobOptions):
    """Options of ``reconcile``. Without ``repair`` it changes nothing, with or without ``dry_run``.

    :param fail_on: by default a table that differs from its source, with outcome ``skipped``, fails the job.
    :param ranges: number of ranges that the keys of each table are split into.
    :param sample: share of the ranges to compare, above 0 and up to 1; the choice changes with the table.
    :param max_wait: seconds to wait until a table has been fed past the time of the comparison, before rows that differ
        are compared again.
    :param max_keys: limit of differing rows in a table; above it they are only counted, not compared again or repaired.
    :param repair: load rows that differ from the source again; not for sources of type ``iceberg``.
    :param quarantine_table: as for ``ingest``; for ``repair``.
    :param report_values: show keys and bounds of ranges in the report.
    """

    fail_on: tuple[Outcome, ...] = ("skipped",)
    ranges: int = 64
    sample: float = 1.0
    max_wait: float = 900.0
    max_keys: int = 10_000
    repair: bool = False
    quarantine_table: str | None = None
    report_values: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.ranges <= _MOST_RANGES:
            raise SpecError(f"options.ranges is {self.ranges}, not 1 to {_MOST_RANGES}.")
        if not 0 < self.sample <= 1:
            raise SpecError(f"options.sample is {self.sample}, not above 0 and up to 1.")
        check_least(self, "options", max_wait=0, max_keys=1)
        check_quarantine_table(self.quarantine_table)
