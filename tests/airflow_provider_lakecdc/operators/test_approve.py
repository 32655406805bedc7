"""The question of an approval, and the effect of its answer."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators import approve
from airflow_provider_lakecdc.operators.approve import ApproveOperator, approved_groups, question
from airflow_provider_lakecdc.submit.reporting import REPORT_KEY
from tests.airflow_provider_lakecdc.conftest import TaskInstance

GROUPS: list[dict[str, Any]] = [
    {
        "tables": ["a.x", "a.y"],
        "policy_options": {"dry_run": True, "longest_job": 9.0, "side_tables": ["a.x_s", "a.y_s"]},
    },
    {"tables": ["a.z"], "policy_options": {"dry_run": True}},
]


def lists(*tables: str) -> dict[str, dict[str, str]]:
    return {table: {"uri": f"file:///{table}", "sha256": table} for table in tables}


def test_the_job_receives_only_the_chosen_tables() -> None:
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


def test_the_question_shows_the_findings_of_each_table() -> None:
    metrics = {"orphan_files": 1234, "orphan_bytes": 9, "orphan_oldest": "2026-01-01", **{"findings": lists("x")["x"]}}
    text = question("remove_orphan_files", {"a.b|c": metrics}, {"a.b|c": "shop"})
    assert text.splitlines()[-1] == "| a.b\\|c | shop | 1,234 | 9 | 2026-01-01 |  | file:///x | x |"


class Pulled(TaskInstance):
    """A task instance with XCom values of other tasks."""

    def xcom_pull(self, task_ids: str, key: str = "return_value", **_: Any) -> Any:
        own = self.xcom.get(key) if task_ids == self.task_id else None
        return own if own is not None else self.left.get((task_ids, key))


def waiting_operator(monkeypatch: pytest.MonkeyPatch, ti: Pulled) -> ApproveOperator:
    """Return the operator, stopped as soon as it has asked a person."""
    operator = ApproveOperator(
        task_id=ti.task_id, job="remove_orphan_files", found_by="dry", planned_by="p", assessment=""
    )
    monkeypatch.setattr(approve, "read_document", lambda _: None)
    monkeypatch.setattr(approve, "parse_assessment", lambda _: SimpleNamespace(tables=[]))
    monkeypatch.setattr(HITLOperator, "execute", lambda *_: None)
    return operator


def dry_run(**lists: dict[str, str]) -> dict[str, Any]:
    return {table: {"metrics": {"findings": of_table}} for table, of_table in lists.items()}


ANSWER = {"params_input": {}, "responded_at": datetime(2026, 1, 1, tzinfo=UTC), "responded_by_user": None}


def test_an_answer_applies_to_the_lists_in_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, later = lists("x", "y"), {table: {"uri": f"again/{table}", "sha256": "0"} for table in ("x", "z")}
    plan = [{"dry": {"tables": ["x", "y", "z"], "policy_options": {"dry_run": True}}}]
    ti = Pulled(left={("dry", REPORT_KEY): dry_run(**shown), ("p", "return_value"): plan})
    operator, context = waiting_operator(monkeypatch, ti), {"ti": ti}
    operator.execute(context)  # type: ignore[arg-type]
    # the dry run is cleared and has different findings, before the answer
    ti.left["dry", REPORT_KEY] = dry_run(**later)
    (group,) = operator.execute_complete(context, {**ANSWER, "chosen_options": ["x", "y"]})  # type: ignore[arg-type]
    assert group["policy_options"]["approved"] == shown
    with pytest.raises(ValueError, match="z"):
        operator.execute_complete(context, {**ANSWER, "chosen_options": ["z"]})  # type: ignore[arg-type]


def test_an_answer_without_a_question_approves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ti = Pulled(left={("dry", REPORT_KEY): dry_run(**lists("x"))})
    operator = waiting_operator(monkeypatch, ti)
    with pytest.raises(JobBadInputError, match="are unknown"):
        operator.execute_complete({"ti": ti}, {**ANSWER, "chosen_options": ["x"]})  # type: ignore[typeddict-item]
