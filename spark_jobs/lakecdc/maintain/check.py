"""Checks of tables: what has to hold in their rows, read in one pass."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.checks import Checks, told_failures
from lakecdc.contract.errors import InputError
from lakecdc.contract.options import CheckTablesOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.table import MAIN
from lakecdc.maintain.rewrite import nothing

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable


def check_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Hold a table's checks against the head of a branch.

    :raises InputError: nobody has said what to check, there is no such branch, or a check does not fit the table.
    """
    assert isinstance(spec.options, CheckTablesOptions)
    options, began = spec.options, time.monotonic()
    wanted = options.checks.get(table.name)
    if not wanted:
        raise InputError(
            "Nobody has said what has to hold there.", table=table.name, hint="Name its checks in options.checks."
        )
    head = table.refresh().head(options.branch)
    if head is None and options.branch != MAIN:
        raise InputError(f"There is no branch {options.branch!r}.", table=table.name)
    rows = table.read(head.id if head else None)
    checks = Checks(table, rows, wanted, list(table.ancestors(options.branch)))
    if options.dry_run:
        return nothing(table, f"dry run: {len(wanted)} checks fit its columns, no row was read", head)
    verdicts = checks.verdicts(show_values=options.report_values)
    counts = Counter("passed" if v.passed else "failed" if v.fails else "warned" for v in verdicts)
    report = nothing(
        table,
        told_failures(verdicts) or "{0} of {0} checks passed".format(len(verdicts)),
        head,
        checks=[verdict.report() for verdict in verdicts],
        **{f"checks_{what}": counts[what] for what in ("passed", "failed", "warned")},
        seconds=round(time.monotonic() - began, 3),
    )
    return replace(report, outcome="failed", failure_class="bad input") if counts["failed"] else report
