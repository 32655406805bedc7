"""Check tables before Spark is started, and report those that need nothing without it.

What :mod:`airflow_provider_lakecdc.lake.assess_table` cannot decide for certain is left to the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.assess_table import ASSESSORS, Idle, OpenTable, assess_job
from airflow_provider_lakecdc.lake.tables import MAIN, read_tables, summary_of
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata import totals

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.spec import JobSpec


@dataclass(frozen=True)
class Precheck:
    """Reports of the tables that need nothing of a job, and the other tables; both are empty without a check."""

    idle: tuple[TableReport, ...] = ()
    left: frozenset[str] = frozenset()

    @property
    def is_all_idle(self) -> bool:
        """Return whether no table is left to the job."""
        return bool(self.idle) and not self.left


def precheck_tables(catalog: CatalogConnection, spec: JobSpec) -> Precheck:
    """Separate the tables of a job that need nothing from all others.

    A side table that does not exist is in neither. A table that cannot be read is left to the job.
    """
    named = list(dict.fromkeys((*spec.tables, *getattr(spec.options, "side_tables", ()))))
    if spec.job not in ASSESSORS or spec.options.dry_run:
        return Precheck()

    def read(name: str, table: Table | None) -> Precheck:
        if table is None and name not in spec.tables:
            return Precheck()
        report = _idle(table, name, spec) if table is not None else None
        return Precheck((report,)) if report else Precheck(left=frozenset({name}))

    checked = read_tables(catalog, named, read, lambda name, _: Precheck(left=frozenset({name}))).values()
    idle = tuple(report for each in checked for report in each.idle)
    return Precheck(idle, frozenset(name for each in checked for name in each.left))


def _idle(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    """Return the report of a table that needs nothing; None if it is left to the job."""
    branch = getattr(spec.options, "branch", MAIN)
    order = spec.options if isinstance(spec.options, SortDataFilesOptions) else SortDataFilesOptions()
    opened = OpenTable(table, branch, order)
    verdict = assess_job(opened, spec.job, spec.options)
    if not isinstance(verdict, Idle):
        return None
    if opened.head is None:
        return TableReport(name, "nothing", verdict.reason)
    numbers = totals.from_summary(summary_of(opened.head)).numbers()
    same = {f"{number}_{moment}": value for moment in ("before", "after") for number, value in numbers.items()}
    at = str(opened.head.snapshot_id)
    return TableReport(name, "nothing", verdict.reason, None, at, at, {**verdict.metrics, "core_seconds": 0.0, **same})
