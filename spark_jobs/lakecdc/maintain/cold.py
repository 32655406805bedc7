"""Plan rewrites that leave a table's cold data files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteDataFilesOptions
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.partition_fields import partition_fields
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.reports import joined
from lakecdc.maintain.rewrite import RewritePlan
from lakecdc.metadata.cold import ColdRules, TimeField, cold_counts, cold_remark, partition_end
from lakecdc.metadata.file_facts import Partitions
from lakecdc.object_store.s3 import storage_classes


def cold_rules(table: IcebergTable, options: RewriteDataFilesOptions) -> ColdRules:
    """Return the rules of a job's options for a table."""
    look_up = partial(storage_classes, storage_properties(table) if options.cold_storage_classes else {})
    end = partial(partition_end, _time_fields(table) if options.cold_after_days else {})
    return ColdRules(options, end, _tagged(table, options.cold_tag), look_up)


def _time_fields(table: IcebergTable) -> dict[int, list[TimeField]]:
    kinds = {field.id: field.type for field in table.fields}
    return {
        spec_id: [TimeField(f.name, f.transform, kinds.get(f.source_id, "")) for f in fields]
        for spec_id, fields in partition_fields(table).items()
    }


def _tagged(table: IcebergTable, tag: str | None) -> frozenset[str]:
    """Return the locations of a tag's data files; none without the tag."""
    ref = read_refs(table).get(tag) if tag else None
    if ref is None:
        return frozenset()
    live = table.metadata("entries", ref.snapshot_id).where("status < 2 AND data_file.content = 0")
    return frozenset(row[0] for row in live.select("data_file.file_path").toLocalIterator())


def plan_warm(rules: ColdRules, partitions: Partitions, plan: Callable[[Partitions], RewritePlan]) -> RewritePlan:
    """Plan a rewrite without cold files, and count these for the report.

    :param plan: called with the data files, cold files marked.
    """
    chosen = rules.choose(partitions, plan, lambda plan: (file for unit in plan.units for file in unit.files))
    return replace(chosen, counts=chosen.counts | cold_counts(rules.mark(partitions)))


def explain_cold(report: TableReport) -> TableReport:
    """Add the skipped cold files to a report's reason."""
    if report.outcome not in ("done", "nothing"):
        return report
    return replace(report, reason=joined(report.reason, cold_remark(report.metrics)) or None)
