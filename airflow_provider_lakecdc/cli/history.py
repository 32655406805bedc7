"""``history``: list what jobs did to tables, from the audit in the lake."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.cli.tables import catalog_of, configuration
from airflow_provider_lakecdc.cli.terminal import print_grid, print_json, print_lines
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.observe.number_format import age
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_moment
from lakecdc.metadata.policy import is_pattern, matching

_HEADINGS = {"ended": "right", "job": "left", "table": "left", "outcome": "left", "core-s": "right", "why": "left"}
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_AGE = re.compile(r"(\d+) ?(min|h|d)")
_STYLES = {"failed": "red", "conflict": "yellow"}


def main(args: Namespace) -> int:
    """Print the rows, newest first; return 0, also if nothing is recorded."""
    since = parse_since(args.since) if args.since else None
    rows = _rows(catalog_of(args, configuration(args)), args.tables, since, args.limit)
    if args.json:
        print_json([asdict(row) for row in rows])
    elif rows:
        print_grid(_HEADINGS, map(_cells, rows), [_STYLES.get(row.outcome, "") for row in rows])
        print_lines("", "core-s: core-seconds used, of the predicted ones")
    else:
        print_lines("No matching rows are recorded.")
    return 0


def _rows(catalog: CatalogConnection, tables: list[str], since: datetime | None, limit: int) -> list[AuditRow]:
    """Return rows of some tables or patterns, newest first; empty means all."""
    if not tables:
        return history(catalog, since=since, limit=limit)
    if any(is_pattern(entry) for entry in tables):
        # only the rows know which tables existed
        everything = history(catalog, since=since, limit=sys.maxsize)
        matches = {*matching(tables, {row.table for row in everything})}
        return [row for row in everything if row.table in matches][:limit]
    rows = [row for table in dict.fromkeys(tables) for row in history(catalog, table, since, limit)]
    return sorted(rows, key=lambda row: (row.finished_at, row.row_id), reverse=True)[:limit]


def parse_since(text: str) -> datetime:
    """Parse the value of ``--since``: ISO-8601 (UTC without a zone), or an age such as ``36h``."""
    if ago := _AGE.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return parse_moment(text, "--since")
    except SpecError as error:
        raise SpecError(
            f"Invalid --since {text!r}.", hint="Use 2026-01-31, 2026-01-31T06:00+01:00, 36h or 7d."
        ) from error


def _cells(row: AuditRow) -> list[str]:
    core_seconds = "-" if row.core_seconds is None else f"{row.core_seconds:,.2f}"
    predicted = "" if row.predicted_core_seconds is None else f" of {row.predicted_core_seconds:,.2f}"
    outcome = f"{row.outcome} (dry)" if row.is_dry_run else row.outcome
    return [age(row.finished_at), row.job, row.table, outcome, f"{core_seconds}{predicted}", row.reason or ""]
