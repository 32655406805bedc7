"""Compaction: small files become files of the target size, files with many deleted rows lose them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.options import CompactDataFilesOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.sort_order import table_order
from lakecdc.maintain.measure import measure
from lakecdc.maintain.rewrite import RewritePlan, execute, from_head, target_bytes
from lakecdc.maintain.selection import apart, compaction_units, moving_units

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot

JOB = "compact_data_files"


def compact_data_files(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Compact what is worth it in one table, keeping the table's sort order.

    Files of a partition spec whose column was dropped move to the current spec, all those of a spec in one commit.
    """
    assert isinstance(spec.options, CompactDataFilesOptions)
    return from_head(table, partial(_compact, table, spec.options))


def _compact(table: IcebergTable, options: CompactDataFilesOptions, start: Snapshot) -> TableReport:
    order, target = table_order(table), target_bytes(table, options)
    measured = measure(table, start.id, order.fields[0] if order.fields else None)
    partitions, of_dropped = apart(measured, specs_by_dropped_columns(table))
    units, counts = compaction_units(partitions, options, target)
    moving, left = moving_units(of_dropped, options, target)
    counts |= {"files_of_dropped_columns": sum(map(len, of_dropped.values())), "files_left": left}
    reason = (
        f"no partition has {options.min_input_files} files below {options.small_file_ratio:g} of {target} bytes, "
        f"enough small ones to fill a file, or a file with {options.delete_ratio:g} of its rows deleted"
    )
    stay = (
        f"{left} files of partition specs whose column was dropped stay: max_group_bytes is less than those of a spec"
    )
    plan = RewritePlan(JOB, start, [*moving, *units], order, target, reason, counts, left=stay if left else None)
    return execute(table, plan, options)
