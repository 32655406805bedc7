"""Compaction: small files become files of the target size, files with many deleted rows lose them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.options import CompactDataFilesOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.sort_order import table_order
from lakecdc.maintain.measure import measure
from lakecdc.maintain.rewrite import RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import compaction_units

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot

JOB = "compact_data_files"


def compact_data_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Compact what is worth it in one table, keeping the table's sort order."""
    assert isinstance(spec.options, CompactDataFilesOptions)
    return from_head(table, partial(_compact, table, spec.options))


def _compact(table: IcebergTable, options: CompactDataFilesOptions, start: Snapshot) -> TableReport:
    order, target = table_order(table), target_bytes(table, options)
    partitions = measure(table, start.id, order.fields[0] if order.fields else None)
    units, counts = compaction_units(partitions, options, target)
    reason = (
        f"no partition has {options.min_input_files} files below {options.small_file_ratio:g} of {target} bytes, "
        f"enough small ones to fill a file, or a file with {options.delete_ratio:g} of its rows deleted"
    )
    return execute(table, RewritePlan(JOB, start, units, order, target, reason, counts), options)
