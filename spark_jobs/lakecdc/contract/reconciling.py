"""The options of ``reconcile``."""

from __future__ import annotations

from dataclasses import dataclass

from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions, Outcome
from lakecdc.contract.quarantine_table import check_quarantine_table

_MOST_RANGES = 256


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
        if not self.max_wait >= 0:
            raise SpecError(f"options.max_wait is {self.max_wait}, not 0 or more seconds.")
        if self.max_keys < 1:
            raise SpecError(f"options.max_keys is {self.max_keys}, not 1 or more.")
        check_quarantine_table(self.quarantine_table)
