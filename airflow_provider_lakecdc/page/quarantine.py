"""Quarantined messages of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import open_table
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


@dataclass(frozen=True)
class BrokenRule:
    """Messages that broke the same rule.

    :param first_seen: time of the first message.
    :param last_seen: time of the last message.
    """

    rule: str
    messages: int
    first_seen: datetime
    last_seen: datetime


def quarantine_of(lake: Lake, table: str, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of a table's quarantine, most frequent rule first.

    :raises InputError: the table is hidden.
    """
    lake.check_shown(table)
    catalog, name = lake.catalog, lake.quarantine_of(table)
    rules = heads.read(catalog, name, (lake.conn_id, table), lambda: _by_rule(catalog, name, table))
    return {"rules": rules, "table": table, "quarantine": name, "replay": lake.replay_dag}


def _by_rule(catalog: CatalogConnection, quarantine: str, table: str) -> list[BrokenRule]:
    """Count messages by rule without reading their content, which may be confidential."""
    from pyiceberg.expressions import EqualTo, Reference
    from pyiceberg.expressions.literals import literal

    with open_table(catalog, quarantine) as loaded:
        if loaded is None:
            return []
        of_table = EqualTo(term=Reference("target"), value=literal(table))
        rows = loaded.scan(of_table, selected_fields=("target", "rule", "first_seen")).to_arrow()
    counts = rows.group_by("rule").aggregate([("rule", "count"), ("first_seen", "min"), ("first_seen", "max")])
    rules = [
        BrokenRule(each["rule"], each["rule_count"], each["first_seen_min"], each["first_seen_max"])
        for each in counts.to_pylist()
    ]
    return sorted(rules, key=lambda each: (-each.messages, each.rule))
