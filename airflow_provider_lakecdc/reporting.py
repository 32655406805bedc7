"""What Airflow keeps of a report: a summary in the log, a compact value in XCom, facts on asset events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_lakecdc.assets import table_asset, tables_alias
from lakecdc.contract.report import JobReport, TableReport

if TYPE_CHECKING:
    from airflow.sdk import Context

_HEADINGS = ("table", "outcome", "snapshot before", "snapshot after", "details")


def compact(report: JobReport) -> dict[str, dict[str, Any]]:
    """The report as XCom holds it: facts by table, empty ones left out.

    Snapshot ids are text, because JavaScript cannot hold 64 bits.
    """
    return {table.table: _facts(table) for table in report.tables}


def summary(report: JobReport) -> str:
    """The report as a table for the log, one line per Iceberg table."""
    rows = [_HEADINGS, *(_row(table) for table in report.tables)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
    title = f"{report.job}, {report.started_at} to {report.finished_at}, {report.spark_application_id or 'no Spark'}"
    return "\n".join([title, *lines, *([f"stopped: {report.error}"] if report.error else [])])


def raise_asset_events(
    context: Context, outlets: Iterable[Any], catalog_conn_id: str, report: JobReport, job_is_dry: bool
) -> None:
    """Put each table's facts on the events of the operator's outlets.

    Airflow raises the event of every plain asset among the outlets when the task succeeds; for those only the extra is
    filled in. Through an alias only tables that have changed get an event.

    :param outlets: the operator's outlets.
    :param catalog_conn_id: names the tables' assets.
    :param job_is_dry: nothing was changed, whatever the outcomes say.
    """
    tables = {table_asset(catalog_conn_id, table.table).uri: table for table in report.tables}
    alias = tables_alias(catalog_conn_id).name
    for outlet in outlets:
        if isinstance(outlet, Asset) and outlet.uri in tables:
            context["outlet_events"][outlet].extra.update(_extra(report, tables[outlet.uri]))
        elif isinstance(outlet, AssetAlias) and outlet.name == alias and not job_is_dry:
            for table in report.tables:
                if table.outcome == "done":
                    asset = table_asset(catalog_conn_id, table.table)
                    context["outlet_events"][outlet].add(asset, extra=_extra(report, table))


def _extra(report: JobReport, table: TableReport) -> dict[str, Any]:
    return {"table": table.table, "job": report.job, **_facts(table)}


def _facts(table: TableReport) -> dict[str, Any]:
    facts = {
        "outcome": table.outcome,
        "reason": table.reason,
        "failure_class": table.failure_class,
        "snapshot_before": table.snapshot_before,
        "snapshot_after": table.snapshot_after,
        "metrics": table.metrics,
    }
    return {name: value for name, value in facts.items() if value not in (None, {})}


def _row(table: TableReport) -> Sequence[str]:
    return (
        table.table,
        table.outcome,
        table.snapshot_before or "-",
        table.snapshot_after or "-",
        details(_facts(table)),
    )


def details(facts: Mapping[str, Any]) -> str:
    """Reason and metrics of a table in one line.

    :param facts: one of :func:`compact`.
    """
    return ", ".join([*([facts["reason"]] if "reason" in facts else []), *_details(facts.get("metrics", {}))])


def _details(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Metrics one by one; what was before and is after as a pair, and only if it has changed."""
    for name, value in metrics.items():
        stem = name.removesuffix("_before").removesuffix("_after")
        before, after = (metrics.get(f"{stem}_{moment}") for moment in ("before", "after"))
        if stem == name or before is None or after is None:
            yield f"{name}={_short(value)}"
        elif name.endswith("_before") and before != after:
            yield f"{stem}={_short(before)}→{_short(after)}"


def _short(value: Any) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
