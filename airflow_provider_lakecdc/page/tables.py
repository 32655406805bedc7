"""List the tables of a lake with their scores; show the state and the quarantine of one table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.audit import Trend, health_trends
from airflow_provider_lakecdc.audit.reading import LATELY
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.assess_table import OpenTable
from airflow_provider_lakecdc.lake.status import status_of
from airflow_provider_lakecdc.lake.tables import (
    branch_snapshots,
    is_kept_fresh,
    open_table,
    read_tables,
    snapshot_facts,
    summary_of,
)
from airflow_provider_lakecdc.page.lakes import Lake, no_such_table
from airflow_provider_lakecdc.page.lookups import MetadataCache
from lakecdc.metadata import names
from lakecdc.metadata.freshness import judge_table
from lakecdc.metadata.health import MOST_FILES_OF_A_WORKER, grade
from lakecdc.metadata.last_write import describe_writes, source_lag_seconds

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SNAPSHOTS = 20
#: length up to which a list reads the tables' metadata; longer ones show the lags of the last measurement
_MOST_READ = 100
#: maximum of tables that the overview names
_MOST_NAMED = 3


def tables_of(lake: Lake, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the tables, lowest score first, unmeasured tables last."""
    known = trends(lake, heads)
    scores = {name: known[name].latest.score if name in known else 101.0 for name in lake.tables}
    moments = read_moments(lake, list(scores), known)
    order = sorted(scores, key=lambda name: (scores[name], name))
    rows = [{"name": name, "trend": known.get(name), **moments[name]} for name in order]
    grades = [grade(score) if name in known else "unmeasured" for name, score in scores.items()]
    counts = {each: grades.count(each) for each in ("bad", "poor", "good", "unmeasured")}
    late = [row for row in rows if row["freshness"] and not row["freshness"].is_kept]
    late.sort(key=lambda row: (row["freshness"].late_seconds is not None, -(row["freshness"].late_seconds or 0.0)))
    hurt = [row for row in rows if row["trend"] and grade(row["trend"].latest.score) != "good"]
    return {"rows": rows, "counts": counts, "late": late, "hurt": hurt, "most": _MOST_NAMED}


def read_moments(lake: Lake, tables: list[str], known: Mapping[str, Trend]) -> dict[str, dict[str, Any]]:
    """Return last write, lag and freshness of each table as of now.

    A table that is not read has the values of the last measurement, and no freshness, because later writes are unknown.
    """
    read = read_tables(lake.catalog, tables, _moments, lambda *_: None) if len(tables) <= _MOST_READ else {}
    measured = {name: trend.latest.facts for name, trend in known.items()}
    return {
        name: _judge(lake, name, moments) if (moments := read.get(name)) else _as_measured(measured.get(name, {}))
        for name in tables
    }


def _as_measured(facts: Mapping[str, Any]) -> dict[str, Any]:
    lag = facts.get("source_lag_seconds")
    return {"written_at": facts.get("written_at"), "lag": lag, "freshness": None, "is_read": False}


def _moments(_: str, table: Table | None) -> dict[str, Any] | None:
    if table is None:
        return None
    moments = describe_writes(map(snapshot_facts, branch_snapshots(table)), table.properties, datetime.now(UTC))
    return {**moments, "is_kept_fresh": is_kept_fresh(table)}


def _judge(lake: Lake, table: str, moments: Mapping[str, Any]) -> dict[str, Any]:
    """Compare a table's moments with now; lags grow without commits and measurements."""
    source_time, now = moments.get("source_time"), datetime.now(UTC)
    promises, is_fed = lake.config.promises if lake.config else {}, moments["is_kept_fresh"]
    return {
        "written_at": moments.get("written_at"),
        "lag": source_lag_seconds(source_time, now),
        "freshness": judge_table(promises, table, source_time, now, is_fed=is_fed),
        "is_read": True,
    }


def trends(lake: Lake, heads: MetadataCache) -> dict[str, Trend]:
    """Return the recent health over time of a catalog's tables."""
    catalog = lake.catalog
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - LATELY
    return heads.read(catalog, names.HEALTH, (lake.conn_id, since), lambda: health_trends(catalog, since))


def table_of(lake: Lake, table: str, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of a table's files, deletes and snapshots.

    :raises InputError: the table does not exist or is hidden.
    """
    lake.check_shown(table)
    catalog = lake.catalog
    values = heads.read(catalog, table, (lake.conn_id, "status"), lambda: _read(catalog, table))
    status = values["status"]
    moments = _judge(lake, table, {**(status["last_write"] or {}), "is_kept_fresh": status["is_kept_fresh"]})
    return {"name": table, "trend": trends(lake, heads).get(table), **moments, **values}


def _read(catalog: CatalogConnection, table: str) -> dict[str, Any]:
    with open_table(catalog, table) as opened:
        # catalogs that ignore case would bypass the visibility check
        if opened is None or ".".join(opened.name()) != table:
            raise no_such_table(table)
        # the same limit as for workers
        is_small = OpenTable(opened).is_small
        return {
            "status": status_of(opened, health=is_small),
            "is_small": is_small,
            "most_files": MOST_FILES_OF_A_WORKER,
            "snapshots": _snapshots(opened),
            "kept": len(opened.metadata.snapshots),
        }


def _snapshots(table: Table) -> list[dict[str, Any]]:
    refs: dict[int, list[str]] = defaultdict(list)
    for name, ref in table.metadata.refs.items():
        refs[ref.snapshot_id].append(name)
    newest = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms, reverse=True)[:_SNAPSHOTS]
    return [
        {
            # as text, since JavaScript numbers lack 64-bit precision
            "id": str(each.snapshot_id),
            "made_at": datetime.fromtimestamp(each.timestamp_ms / 1000, UTC),
            "operation": each.summary.operation.value if each.summary else "",
            "job": summary_of(each).get(names.JOB),
            "refs": sorted(refs[each.snapshot_id]),
            "summary": summary_of(each),
        }
        for each in newest
    ]


def quarantine_of(lake: Lake, table: str, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of a table's quarantine, most frequent rule first.

    :raises InputError: the table is hidden.
    """
    lake.check_shown(table)
    catalog, name = lake.catalog, lake.quarantine_of(table)
    rules = heads.read(catalog, name, (lake.conn_id, table), lambda: _by_rule(catalog, name, table))
    return {"rules": rules, "table": table, "quarantine": name, "replay": lake.replay_dag}


def _by_rule(catalog: CatalogConnection, quarantine: str, table: str) -> list[dict[str, Any]]:
    """Count messages by rule without reading their content, which may be confidential."""
    from pyiceberg.expressions import EqualTo, Reference
    from pyiceberg.expressions.literals import literal

    with open_table(catalog, quarantine) as loaded:
        if loaded is None:
            return []
        of_table = EqualTo(term=Reference("target"), value=literal(table))
        rows = loaded.scan(of_table, selected_fields=("target", "rule", "first_seen")).to_arrow()
    counts = rows.group_by("rule").aggregate([("rule", "count"), ("first_seen", "min"), ("first_seen", "max")])
    rules = sorted(counts.to_pylist(), key=lambda each: (-each["rule_count"], each["rule"]))
    return [
        {
            "rule": each["rule"],
            "messages": each["rule_count"],
            "first_seen": each["first_seen_min"],
            "last_seen": each["first_seen_max"],
        }
        for each in rules
    ]
