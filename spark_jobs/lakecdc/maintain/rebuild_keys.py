"""Rebuild rows of aggregated tables from their history tables."""

from __future__ import annotations

from lakecdc.contract.past import RebuildKeysOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.api import rebuild


def rebuild_keys(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Rebuild rows of a table from all their source rows, in one commit.

    :raises InputError: the table is not aggregated, or keys or rules do not fit.
    :raises ConflictError: ingestion committed to the table meanwhile.
    """
    options = spec.options_as(RebuildKeysOptions)
    return rebuild(table.refresh(), spec, options.keys.get(table.name, ()), options.rules.get(table.name, {}))
