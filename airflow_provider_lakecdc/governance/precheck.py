"""A look at tables before Spark is started for them: those that need nothing of a job are reported without it.

What :mod:`airflow_provider_lakecdc.lake.assess_table` cannot tell for certain is left to the job.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.assess_table import ASSESSORS, Idle, OpenTable, assess_job
from airflow_provider_lakecdc.lake.tables import MAIN, load_table, summary_of
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata import totals

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.spec import JobSpec

log = logging.getLogger(__name__)

_THREADS = 4


@dataclass(frozen=True)
class FirstLook:
    """What a job has left to do.

    :param idle: reports of the tables that need nothing; none if nobody has looked.
    :param left: the others, side tables among them.
    """

    idle: tuple[TableReport, ...] = ()
    left: frozenset[str] = frozenset()

    @property
    def is_all_idle(self) -> bool:
        """Whether no table is left to the job."""
        return bool(self.idle) and not self.left


def look(catalog: CatalogConnection, spec: JobSpec) -> FirstLook:
    """Tell the tables of a job apart: those that need nothing of it, and all others.

    A side table that does not exist is in neither. One that cannot be looked at is left to the job.
    """
    named = list(dict.fromkeys((*spec.tables, *getattr(spec.options, "side_tables", ()))))
    if spec.job not in ASSESSORS or spec.options.dry_run:
        return FirstLook()
    # clients of some catalogs are not for several threads, so that each has its own
    parts = [part for number in range(_THREADS) if (part := named[number::_THREADS])]
    found: dict[str, TableReport | None] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for reports in pool.map(partial(_look_at, catalog, spec), parts):
            found |= reports
    idle = tuple(report for name in named if (report := found.get(name)) is not None)
    return FirstLook(idle, frozenset(name for name, report in found.items() if report is None))


def _look_at(catalog: CatalogConnection, spec: JobSpec, tables: Sequence[str]) -> dict[str, TableReport | None]:
    """Return reports of the tables that need nothing, None for those left to the job; absent side tables have none."""
    found: dict[str, TableReport | None] = dict.fromkeys(tables)
    try:
        with closing(catalog.load()) as opened:
            for name in tables:
                if (table := load_table(opened, name)) is not None:
                    found[name] = _report(table, name, spec)
                elif name not in spec.tables:
                    del found[name]
    except Exception:
        log.warning("Not all tables can be looked at from here; the others are left to Spark.", exc_info=True)
    return found


def _report(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    """Return the report of a table that needs nothing; None if it is left to the job."""
    try:
        return _idle(table, name, spec)
    except Exception:
        log.warning("%s cannot be looked at from here, and is left to Spark.", name, exc_info=True)
        return None


def _idle(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    branch = getattr(spec.options, "branch", MAIN)
    order = spec.options if isinstance(spec.options, SortDataFilesOptions) else SortDataFilesOptions()
    opened = OpenTable(table, branch, order)
    found = assess_job(opened, spec.job, spec.options)
    if not isinstance(found, Idle):
        return None
    if opened.head is None:
        return TableReport(name, "nothing", found.reason)
    numbers = totals.from_summary(summary_of(opened.head)).numbers()
    same = {f"{number}_{moment}": value for moment in ("before", "after") for number, value in numbers.items()}
    at = str(opened.head.snapshot_id)
    return TableReport(name, "nothing", found.reason, None, at, at, {**found.metrics, "core_seconds": 0.0, **same})
