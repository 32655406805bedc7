"""A history ends in the fold of its statements, in any order, with repetitions and in any batches.

Either engine decodes a batch: both order events alike, so one continues where the other ended.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakecdc.contract.target import Target
from lakecdc.ingest.fold import fold
from tests.lakecdc.ingest.by_spark import ENGINES
from tests.lakecdc.ingest.formats.decoding import decode_lines
from tests.on_demand import on_demand

Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None]
TARGET = Target("shop.t", key=("id",), columns={"id": "bigint", "v": "string", "n": "bigint"})


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Draw inserts, updates, key changes, deletes and re-inserts of a few keys."""
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    for number in range(draw(st.integers(4, 24))):
        key = draw(st.integers(0, 4))
        row = {"id": key, "v": draw(st.sampled_from(["a", "é", "", "null"])) + str(number), "n": number}
        if key not in rows:
            changes.append(("c", None, row))
            rows[key] = row
            continue
        before = rows.pop(key)
        move = draw(st.integers(0, 4))
        if draw(st.booleans()):
            changes.append(("d", before, None))
        else:
            new = move if move not in rows else key
            row["id"], rows[new] = new, row
            changes.append(("u", before, row))
    return changes


def final(changes: list[Change]) -> list[tuple[Any, ...]]:
    rows: dict[int, Row] = {}
    for _, before, after in changes:
        if before:
            del rows[before["id"]]
        if after:
            rows[after["id"]] = after
    return sorted((r["id"], r["v"], r["n"]) for r in rows.values())


def debezium(changes: list[Change]) -> list[str]:
    """Encode a change of the key as a delete and an insert."""
    lines = []
    for number, (op, before, after) in enumerate(changes):
        moved = op == "u" and before and after and before["id"] != after["id"]
        parts = [("d", before, None), ("c", None, after)] if moved else [(op, before if op == "d" else None, after)]
        for nth, (kind, old, new) in enumerate(parts):
            source = {"connector": "mysql", "db": "shop", "table": "t", "file": f"b.{number // 8 + 8}", "row": nth}
            source |= {"pos": 100 * (number % 8), "ts_ms": 1000 * number}
            lines.append(json.dumps({"op": kind, "before": old, "after": new, "source": source}))
    return lines


def canal(changes: list[Change]) -> list[str]:
    names, types = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}, {"id": "bigint", "v": "text", "n": "bigint"}
    lines = []
    for number, (op, before, after) in enumerate(changes):
        row, old = after or before or {}, {k: str(v) for k, v in (before or {}).items() if after and after[k] != v}
        body = {"data": [{k: str(v) for k, v in row.items()}], "old": [old] if op == "u" else None, "mysqlType": types}
        place = {"es": 1000 * (number // 3), "id": number, "isDdl": False, "database": "shop", "table": "t"}
        lines.append(json.dumps({**body, **place, "type": names[op]}))
    return lines


def maxwell(changes: list[Change]) -> list[str]:
    names = {"c": "insert", "u": "update", "d": "delete"}
    lines = []
    for number, (op, before, after) in enumerate(changes):
        message = {"database": "shop", "table": "t", "type": names[op], "ts": number // 5, "data": after or before}
        if op == "u":
            assert before and after
            message["old"] = {k: v for k, v in before.items() if after[k] != v}
        lines.append(json.dumps({**message, "xid": 100 + number, "commit": True}))
    return lines


def ogg(changes: list[Change]) -> list[str]:
    names = {"c": "I", "u": "U", "d": "D"}
    return [
        json.dumps({"table": "SHOP.T", "pos": f"{n:020d}", "op_type": names[op], "before": before, "after": after})
        for n, (op, before, after) in enumerate(changes)
    ]


def dms(changes: list[Change]) -> list[str]:
    names = {"c": "insert", "u": "update", "d": "delete"}
    lines = []
    for number, (op, before, after) in enumerate(changes):
        old = {f"BI_{k}": v for k, v in (before or {}).items() if op == "u"}
        about = {"record-type": "data", "operation": names[op], "schema-name": "shop", "table-name": "t"}
        moment = f"2026-01-01T00:00:00.{number:06d}Z"
        lines.append(
            json.dumps({"data": {**old, **(after or before or {})}, "metadata": {**about, "timestamp": moment}})
        )
    return lines


FORMATS: dict[str, Callable[[list[Change]], list[str]]] = {
    "debezium-json": debezium,
    "canal-json": canal,
    "maxwell-json": maxwell,
    "ogg-json": ogg,
    "dms-json": dms,
}


class Model:
    """A keyed table and its remembered deletes, in Python."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, tuple[Any, ...]]] = {}
        self.deletes: dict[int, str] = {}

    def apply(self, batch: list[Any]) -> None:
        for event in batch:
            key, order = event["key"]["id"], event["order"]
            newest = max(self.rows.get(key, ("",))[0], self.deletes.get(key, ""))
            if order < newest:
                continue
            self.rows.pop(key, None)
            if event["op"] == "d":
                self.deletes[key] = order
            else:
                self.rows[key] = (order, tuple(event["row"][c] for c in ("id", "v", "n")))

    def final(self) -> list[tuple[Any, ...]]:
        return sorted(row for _, row in self.rows.values())


@pytest.mark.parametrize("name", on_demand(FORMATS, in_ci=("debezium-json",)))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=histories(), seed=st.integers(0, 2**16), cuts=st.integers(1, 3))
def test_any_order_repetition_and_division_ends_in_the_fold(
    spark: SparkSession, name: str, changes: list[Change], seed: int, cuts: int
) -> None:
    rng, lines = random.Random(seed), FORMATS[name](changes)
    arrived = lines + lines[: rng.randrange(len(lines) + 1)]
    rng.shuffle(arrived)
    bounds = sorted(rng.randrange(len(arrived) + 1) for _ in range(cuts - 1))
    model = Model()
    for low, high in zip([0, *bounds], [*bounds, len(arrived)], strict=True):
        if low == high:
            continue
        decoded = decode_lines(spark, name, arrived[low:high], TARGET, engine=rng.choice(ENGINES))
        assert decoded.rejections == 0 and decoded.rows is not None
        model.apply(fold(decoded.rows.frame).collect())
        spark.catalog.clearCache()
    assert model.final() == final(changes)
