"""Parsing of targets that aggregate many source rows."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.aggregating import AggregateColumn
from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import parse_spec

MERGE = {"engine": "aggregate", "group_by": ["country"], "columns": {"total": "sum(amount)", "orders": "count(*)"}}
TARGET = {"table": "shop.totals", "source_table": "orders", "key": ["id"], "history_table": "shop.orders_history"}


def parsed(merge: dict[str, Any], job: str = "ingest", **settings: Any) -> Any:
    source = {"type": "postgres", "dsn": "dbname=d", "slot": "s"}
    options = settings.pop("options", {})
    target = {**TARGET, "columns": {"price": "double", "flag": "int"}, "merge": {**MERGE, **merge}, **settings}
    catalog = {"name": "lake", "properties": {}}
    document = {"version": 1, "job": job, "catalog": catalog, "source": source, "target": target, "options": options}
    return parse_spec(document)


def test_the_source_feeds_the_history_table() -> None:
    spec = parsed({})
    assert spec.tables == ("shop.totals",)
    assert [(each.table, each.mode, each.source_table, each.key) for each in spec.targets] == [
        ("shop.orders_history", "history", "orders", ("id",))
    ]
    assert [each.table for each in spec.aggregated] == ["shop.totals"]


def test_freshness_applies_to_the_table_alone() -> None:
    spec = parsed({}, freshness="30m")
    assert [each.freshness for each in (*spec.targets, *spec.aggregated)] == [None, "30m"]


@pytest.mark.parametrize(
    ("merge", "settings", "message"),
    [
        ({}, {"history_table": None}, "it has no history_table"),
        ({}, {"key": []}, "it has no key"),
        ({}, {"mode": "merge"}, "mode is 'merge'"),
        (
            {},
            {"table": "shop.{table}", "history_table": "h.{table}", "source_table": None, "source_tables": ["a"]},
            "a pattern",
        ),
        ({}, {"options": {"reload": ["*"]}}, "aggregated from a history table"),
        ({}, {"job": "reconcile"}, "aggregated from many"),
        ({}, {"clean": {"filter": "id > 1"}}, "clean filters or computes"),
        ({"group_by": []}, {}, "has no group_by"),
        ({"columns": {}}, {}, "has no columns"),
        ({"columns": {"last": "last(id)"}}, {}, "not a function of several rows"),
        ({"columns": {"n": "min(*)"}}, {}, "only count takes *"),
        ({"columns": {"country": "count(*)"}}, {}, "a column of group_by"),
        ({"columns": {"total": "sum(price)"}}, {}, 'set "columns": {"price": "decimal(38,6)"}'),
        ({"columns": {"every": "bool_and(flag)"}}, {}, "for boolean columns"),
        ({"deletes": "ignore"}, {}, "Remove default, groups and deletes"),
        ({"engine": None}, {}, 'which is for "engine": "aggregate"'),
        ({"engine": None, "group_by": [], "columns": {"n": "sum"}}, {}, 'set "engine": "aggregate"'),
    ],
)
def test_mistakes_are_refused_when_the_dag_is_parsed(merge: Any, settings: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parsed(merge, **settings)
    assert message in f"{error.value} {error.value.hint}"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("sum(a)", "int", "bigint"),
        ("sum", "decimal(12,2)", "decimal(22,2)"),
        ("sum(a)", "decimal(38,4)", "decimal(38,4)"),
        ("count(*)", "string", "bigint"),
        ("max(a)", "date", "date"),
        ("collect_set(a)", "string", "array<string>"),
    ],
)
def test_types_of_aggregates_follow_their_columns(text: str, kind: str, expected: str) -> None:
    assert AggregateColumn.parse("a", text).type_of(kind) == expected
