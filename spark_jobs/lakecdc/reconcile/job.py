"""The job reconcile: compare each target with its source table, and optionally repair it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from lakecdc.contract.feeding import ReconcileOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.definition import refuse_merged
from lakecdc.iceberg.table import IcebergTable
from lakecdc.iceberg.threads import described
from lakecdc.ingest.api import Source, expand_targets, open_source
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.maintain.reports import ends
from lakecdc.reconcile.compare import KINDS, Comparison, Difference, Differences, KeyRanges, cut, pair
from lakecdc.reconcile.repair import Recheck, Repaired, recheck, repair
from lakecdc.runtime.run import failure
from lakecdc.sql import quoted_column

#: maximum number of rows in a report
MAX_REPORTED = 100


def reconcile(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Compare the spec's targets with their source tables, one after another.

    :raises LakecdcError: the source as a whole cannot be read; the failure of a single table is in its report.
    """
    spec, shared = expand_targets(spark, spec)
    options, source = spec.options_as(ReconcileOptions), open_source(spark, spec)

    def one(target: Target) -> TableReport:
        with described(spark, target.table, spec.job):
            try:
                if refused := shared.get(target.table):
                    raise refused
                with bounded_reads(IcebergTable(spark, spec.catalog.name, target.table)) as table:
                    return _compared(table, target, source, spec)
            except Exception as error:
                return failure(target.table, error, values=options.report_values)

    try:
        return [one(target) for target in spec.targets]
    finally:
        source.close()


def _compared(table: IcebergTable, target: Target, source: Source, spec: JobSpec) -> TableReport:
    options = spec.options_as(ReconcileOptions)
    if options.repair:
        refuse_merged(table, "a single group of columns cannot be reloaded")
    sides, head = pair(table, target, source.open(target, table)), table.head()
    snapshot = head.id if head else None
    columns = list(map(quoted_column, sides.key))
    count = head.rows if head else None
    ranges = cut(table.read(snapshot, columns), count or 0, sides.key, sides.leading(), options.ranges)
    comparison, places = Comparison(sides, ranges), ranges.sample(options.sample, snapshot or 0)
    digests, unreadable = comparison.digests(snapshot, places)
    unequal = [place for place, (there, here) in digests.items() if there != here]
    differences, result = Differences(), Recheck((), looks=0)
    if unequal:
        differences = comparison.differences_in(unequal, options.max_keys)
        result = recheck(comparison, differences, options.max_wait)
    repaired = Repaired(result)
    if options.repair and not options.dry_run and result.mismatches:
        repaired = repair(spec, comparison, result)
        result = repaired.left
    too_many = differences.total if differences.total > options.max_keys else 0
    counts = differences.counts if too_many else Counter(each.kind for each in result.mismatches)
    metrics: dict[str, Any] = {
        "ranges": len(ranges),
        "ranges_compared": len(places),
        "ranges_different": len(unequal),
        "rows_source": sum(there.rows for there, _here in digests.values()),
        "rows_table": sum(here.rows for _there, here in digests.values()),
        **{str(kind): counts.get(kind, 0) for kind in KINDS},
        "in_flight": result.in_flight,
        "undecided": result.undecided,
        "repaired": len(repaired.rows),
        "unreadable": unreadable,
        "looks": result.looks,
        "columns_different": dict(Counter(name for each in result.mismatches for name in each.columns)),
        "columns_not_compared": list(sides.alone),
        "different_ranges": _by_range(result.mismatches, ranges, options.report_values),
        "differences": [_facts(each, options.report_values) for each in result.mismatches[:MAX_REPORTED]],
        "repairs": [_facts(each, options.report_values) for each in repaired.rows[:MAX_REPORTED]],
    }
    outcome, reason = _verdict(counts, metrics, too_many)
    if options.repair and options.dry_run and result.mismatches:
        reason += f"; a run without dry_run would reload {len(result.mismatches)} of them"
    report = TableReport(table.name, outcome, reason, **ends(head, head), metrics=metrics)
    if loaded := repaired.loaded:
        report = replace(report, snapshot_after=loaded.snapshot_after)
        if loaded.failure_class:
            reason = f"{reason}, and could not be reloaded: {loaded.reason}"
            report = replace(report, outcome=loaded.outcome, reason=reason, failure_class=loaded.failure_class)
    return report


def _verdict(counts: Mapping[Any, int], metrics: Mapping[str, Any], too_many: int) -> tuple[Any, str]:
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts.get(kind)]
    if metrics["unreadable"]:
        parts.append(f"{metrics['unreadable']} that ingestion could not write")
    if too_many:
        return "skipped", (
            f"{too_many} rows differ ({', '.join(parts)}), more than max_keys, so none was rechecked or repaired: "
            "some may be in flight; to reload them all, run ingest once with reload"
        )
    if metrics["undecided"]:
        parts.append(
            f"{metrics['undecided']} undecided, because the table was not fed past the moment of reading within "
            "max_wait or the source kept changing them"
        )
    repaired = f"{metrics['repaired']} that differed were reloaded" if metrics["repaired"] else ""
    if parts:
        return "skipped", f"rows differ from the source: {', '.join(parts)}{f'; {repaired}' if repaired else ''}"
    if repaired:
        return "done", f"all rows compared now equal the source, {repaired}"
    flight = metrics["in_flight"]
    return "nothing", (
        f"all {metrics['rows_table']} rows compared equal the source"
        f"{f', {flight} of them after a change in flight had arrived' if flight else ''}"
    )


def _by_range(rows: Sequence[Difference], ranges: KeyRanges, values: bool) -> list[dict[str, Any]]:
    counts: dict[int, Counter[str]] = {}
    for each in rows:
        counts.setdefault(each.range, Counter())[each.kind] += 1
    entries = []
    for place in sorted(counts):
        low, high = ranges.ends_as_text(place)
        entries.append({"range": place, **({"from": low, "to": high} if values else {}), **counts[place]})
    return entries


def _facts(row: Difference, values: bool) -> dict[str, Any]:
    key = {"key": row.key_text} if values else {}
    return {"kind": row.kind, "range": row.range, "columns": list(row.columns), **key}
