"""Messages of a table that could not be applied and wait for a replay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import open_table
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import Heads

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


@dataclass(frozen=True)
class Broken:
    """Messages that have broken the same rule.

    :param first_seen: when the first of them came.
    :param last_seen: when the last of them came.
    """

    rule: str
    messages: int
    first_seen: datetime
    last_seen: datetime


def quarantine_of(lake: Lake, table: str, heads: Heads) -> dict[str, Any]:
    """What the quarantine holds of a table, the rule that most messages have broken first.

    :raises InputError: whoever asks may not see the table.
    """
    lake.check_shown(table)
    catalog, name = lake.catalog, lake.quarantine_of(table)
    rules = heads.read(catalog, name, (lake.conn_id, table), lambda: _by_rule(catalog, name, table))
    return {"rules": rules, "table": table, "quarantine": name, "replay": lake.replay_dag}


def _by_rule(catalog: CatalogConnection, quarantine: str, table: str) -> list[Broken]:
    """Count without reading a message: what is in it is nobody's business here."""
    from pyiceberg.expressions import EqualTo, Reference
    from pyiceberg.expressions.literals import literal

    with open_table(catalog, quarantine) as found:
        if found is None:
            return []
        of_table = EqualTo(term=Reference("target"), value=literal(table))
        rows = found.scan(of_table, selected_fields=("target", "rule", "first_seen")).to_arrow()
    told = rows.group_by("rule").aggregate([("rule", "count"), ("first_seen", "min"), ("first_seen", "max")])
    rules = [
        Broken(each["rule"], each["rule_count"], each["first_seen_min"], each["first_seen_max"])
        for each in told.to_pylist()
    ]
    return sorted(rules, key=lambda each: (-each.messages, each.rule))
