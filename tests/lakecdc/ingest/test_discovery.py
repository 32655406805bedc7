"""Patterns become targets, and shards become one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target, parse_targets
from lakecdc.ingest.discovery import named_targets
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake

SOURCE_TABLES = ["pg.shop.orders", "pg.shop.lines", "pg.crm.orders", "pg.shop.tmp_1"]


def names(*targets: Target) -> dict[str, str | None]:
    return {t.table: t.source_table for t in named_targets(targets, SOURCE_TABLES)[0]}


def test_a_pattern_selects_every_table_it_matches() -> None:
    pattern = Target(
        "lake.{schema}_{table}", source_tables=(r"shop\..*", r"crm\.orders"), exclude_source_tables=("tmp.*",)
    )
    assert names(pattern) == {
        "lake.shop_orders": "pg.shop.orders",
        "lake.shop_lines": "pg.shop.lines",
        "lake.crm_orders": "pg.crm.orders",
    }


def test_a_named_table_is_excluded_from_patterns() -> None:
    own = Target("lake.mine", source_table="pg.shop.orders")
    twin = Target("lake.lines")
    pattern = Target("lake.{table}", source_tables=(r"shop\..*",), exclude_source_tables=("tmp_.",))
    assert names(own, twin, pattern) == {"lake.mine": "pg.shop.orders", "lake.lines": None}


def test_only_tables_that_share_a_target_are_refused() -> None:
    targets, shared = named_targets([Target("lake.{table}", source_tables=(r".*orders|.*lines",))], SOURCE_TABLES)
    assert [t.table for t in targets] == ["lake.orders", "lake.lines"]
    assert list(shared) == ["lake.orders"]
    assert "pg.shop.orders and pg.crm.orders would both feed it" in str(shared["lake.orders"])


def test_a_pattern_never_matches_tables_of_lakecdc() -> None:
    tables = ["s.a", "s.a_lakecdc_deletes", "s.A_LAKECDC_FILES", "s.lakecdc_quarantine", "s.lakecdc_parked", "s.kept"]
    pattern = Target("lake.{table}", source_tables=(".*",))
    assert [t.table for t in named_targets([pattern], tables, quarantine="lake.kept")[0]] == ["lake.a"]
    each = named_targets([pattern], ["s.a", "s.a_bad"], quarantine="{namespace}.{table}_bad")[0]
    assert [t.table for t in each] == ["lake.a"]
    beside = Target("lake.{table}", source_tables=(".*",), history_table="lake.{table}_lakecdc_files")
    assert named_targets([beside], tables) == ((), {})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"table": "a.{nope}", "source_tables": [".*"]}, "Only {schema} and {table}"),
        ({"table": "a.{schema}", "source_tables": [".*"]}, 'contains "{table}"'),
        ({"table": "a.{table}"}, "source_tables"),
        ({"table": "a.b", "source_tables": ["("]}, "regular expression"),
        ({"table": "a.b", "source_tables": ["x"], "source_table": "y"}, "both set"),
        ({"table": "a.{table}", "source_tables": ["x"], "history_table": "a.h"}, "share one history_table"),
        ({"table": "a.b", "source_column": "c"}, "is for shards"),
        ({"table": "a.b", "fold_case": True, "exclude_columns": ["c"]}, "both set"),
    ],
)
def test_contradictory_targets_are_refused(target: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_targets(target)
    assert message in str(error.value)


def event(lsn: int, table: str, op: str, row: dict[str, Any]) -> str:
    source = {"connector": "postgresql", "schema": "s", "table": table, "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"op": op, **images, "source": source})


@pytest.mark.parametrize("apart", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_shards_feed_one_table(lake: Lake, tmp_path: Path, apart: bool) -> None:
    name = lake.new_name("shards")
    key = ["shard", "id"] if apart else ["id"]
    target = {"table": name, "key": key, "source_tables": [r"s\.orders_\d"], "source_column": "shard"}
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"}
    spec = parse_spec(lake.spec("ingest", source=source, target=target))
    first = [
        event(1, "orders_1", "c", {"id": 1, "v": "a"}),
        event(2, "orders_2", "c", {"id": 2, "v": "b"}),
        event(3, "other", "c", {"id": 9, "v": "z"}),
    ]
    (tmp_path / "1.jsonl").write_text("\n".join(first))
    report = run(spec, ingest).tables[0]
    assert report.outcome == "done", report.reason
    second = [event(4, "orders_2", "c", {"id": 1, "v": "c"}), event(5, "orders_1", "d", {"id": 1})]
    (tmp_path / "2.jsonl").write_text("\n".join(second))
    report = run(spec, ingest).tables[0]
    assert report.outcome == "done", report.reason
    rows = sorted(lake.duckdb_rows(name, "shard, id, v"))
    first_shard = [("s.orders_2", 1, "c")] if apart else []
    assert rows == sorted([*first_shard, ("s.orders_2", 2, "b")])
