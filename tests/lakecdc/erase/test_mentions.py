"""Keys in reports and documents: values are found, counts are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakecdc.erase.mentions import Mentions, documents_with_keys

TABLE = "shop.customers"
ONE = Mentions(["id"], [["7"], ["-8"]], {TABLE})
TWO = Mentions(["name", "id"], [["Jane Doe", "7"], ["Joe", "9"]], {TABLE})


@pytest.mark.parametrize(
    "value",
    [
        "7",
        'id is unique fails in 3 rows, such as {"id":7,"v":1}',
        "id = 7 AND v > 1",
        "id in (1, 7)",
        "the value '7' cannot be cast",
        "row id=-8",
        '{"id":7,"name":"cut of',
        {"sample": ['{"id":7,"v":null}']},
        {"differences": [{"key": '{"id":7}', "kind": "missing"}]},
        {"ranges": [{"from": "1", "to": "7"}]},
        {"partition": {"id": 7}},
        {"id=7": 3},
    ],
)
def test_keys_are_found_in_values(value: Any) -> None:
    assert ONE.in_value(json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    "value",
    [
        "7 files are orphans",
        "of 9 messages 7 wait",
        "read through 2026-11-07T07:07:00.7+00:00",
        "version 1.7",
        "id = 77",
        {"rows_written": 7, "seconds": 7.0},
        {"id": 77},
    ],
)
def test_counts_are_not_keys(value: Any) -> None:
    assert not ONE.in_value(json.loads(json.dumps(value)))


def test_all_values_of_a_composite_key_are_required() -> None:
    assert TWO.in_value({"key": '{"id":7,"name":"Jane Doe"}'})
    assert TWO.in_text("name = 'Jane Doe' AND id = 7")
    assert not TWO.in_text("name = 'Jane Doe' AND id = 9")
    assert not TWO.in_value({"id": 9, "name": "Jane Doe"})


def test_documents_about_the_tables_are_searched(tmp_path: Path) -> None:
    def leave(name: str, *parts: Any) -> str:
        path = tmp_path / "dag" / "try-1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(json.dumps(part) for part in parts))
        return str(path)

    def report(table: str, key: int) -> dict[str, Any]:
        return {"table": table, "metrics": {"checks": [{"sample": [json.dumps({"id": key})]}]}}

    checked = {"job": "check_tables", "tables": [TABLE], "options": {"checks": {TABLE: [{"condition": "id <> 7"}]}}}
    other = "shop.orders"
    with_keys = {
        leave("spec.json", checked),
        leave("report.json", {"tables": [report(TABLE, 7), report(other, 1)]}),
        leave("findings-x-shop.customers.jsonl", {"partition": {"id": 1}}, {"partition": {"id": 7}}),
    }
    clean = {
        leave("assessment.json", {"tables": [report(TABLE, 1), report(other, 7)]}),
        leave("plan.json", report(other, 7)),
        leave("findings-x-shop.orders.jsonl", {"partition": {"id": 7}}),
    }
    leave("notes.txt", report(TABLE, 7))
    count, documents = documents_with_keys(f"file://{tmp_path}", ONE)
    assert (count, set(documents)) == (len(with_keys | clean), with_keys)
    assert documents_with_keys(f"file://{tmp_path}/none", ONE) == (0, [])
