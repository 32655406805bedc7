"""Check tables: conditions on their rows, evaluated in one pass."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from lakecdc.checks import Checks, describe_failures
from lakecdc.contract.errors import InputError
from lakecdc.contract.options import CheckTablesOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.maintain.reports import nothing, seconds_since
from lakecdc.maintain.rewrite import head_of


def check_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Run a table's checks on the head of a branch.

    :raises InputError: no checks are given, the branch does not exist, or a check does not fit the table.
    """
    if spec.options.dry_run:
        # opening a bounded read starts a search
        return _checked(table, spec)
    with bounded_reads(table) as bounded:
        return _checked(bounded, spec)


def _checked(table: IcebergTable, spec: JobSpec) -> TableReport:
    options, began = spec.options_as(CheckTablesOptions), time.monotonic()
    requested = options.checks.get(table.name)
    if not requested:
        raise InputError("It has no checks.", table=table.name, hint="Add its checks to options.checks.")
    head = head_of(table, options.branch)
    rows = table.read(head.id if head else None)
    checks = Checks(table, rows, requested, list(table.ancestors(options.branch)))
    if options.dry_run:
        return nothing(table, f"dry run: {len(requested)} checks fit its columns, no row was read", head)
    verdicts = checks.verdicts(show_values=options.report_values)
    counts = Counter("passed" if v.passed else "failed" if v.fails else "warned" for v in verdicts)
    report = nothing(
        table,
        describe_failures(verdicts) or "{0} of {0} checks passed".format(len(verdicts)),
        head,
        checks=[verdict.report() for verdict in verdicts],
        **{f"checks_{what}": counts[what] for what in ("passed", "failed", "warned")},
        seconds=seconds_since(began),
    )
    return replace(report, outcome="failed", failure_class="bad input") if counts["failed"] else report
