"""Options of the jobs that feed tables."""

from __future__ import annotations

from dataclasses import dataclass

from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.quarantine_table import check_quarantine_table


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
