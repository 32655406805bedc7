"""What a person is asked, and what becomes of the answer."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecdc.operators.approve import approved_groups, question

GROUPS: list[dict[str, Any]] = [
    {
        "tables": ["a.x", "a.y"],
        "policy_options": {"dry_run": True, "longest_job": 9.0, "side_tables": ["a.x_s", "a.y_s"]},
    },
    {"tables": ["a.z"], "policy_options": {"dry_run": True}},
]


def lists(*tables: str) -> dict[str, dict[str, str]]:
    return {table: {"uri": f"file:///{table}", "sha256": table} for table in tables}


def test_the_job_is_told_of_the_chosen_tables_alone() -> None:
    assert approved_groups(GROUPS, {}) == []
    options = {"dry_run": False, "longest_job": 9.0}
    assert approved_groups(GROUPS, lists("a.y", "a.x_s")) == [
        {
            "tables": ["a.y"],
            "policy_options": {**options, "side_tables": ["a.x_s"], "approved": lists("a.y", "a.x_s")},
        }
    ]
    beside, other = approved_groups(GROUPS, lists("a.y_s", "a.z"))
    assert beside == {"tables": ["a.y_s"], "policy_options": {**options, "approved": lists("a.y_s")}}
    assert other == {"tables": ["a.z"], "policy_options": {"dry_run": False, "approved": lists("a.z")}}


def test_the_question_has_what_was_found_in_each_table() -> None:
    metrics = {"orphan_files": 1234, "orphan_bytes": 9, "orphan_oldest": "2026-01-01", **{"findings": lists("x")["x"]}}
    text = question("remove_orphan_files", {"a.b|c": metrics}, {"a.b|c": "shop"})
    assert text.splitlines()[-1] == "| a.b\\|c | shop | 1,234 | 9 | 2026-01-01 |  | file:///x | x |"
