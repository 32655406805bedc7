"""The operator of several steps: its submission, and its result for tables with several outcomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecdc.exceptions import JobBadInputError, JobConflictError
from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.govern import GovernOperator
from airflow_provider_lakecdc.submit.reporting import REPORT_KEY
from tests.airflow_provider_lakecdc.conftest import FakeSpark, TaskInstance, changed

Context = Any
pytestmark = pytest.mark.usefixtures("lake")
STEPS: list[dict[str, Any]] = [
    {"job": "rewrite_delete_files", "options": {"max_runtime": "60"}},
    {"job": "compact_data_files", "tables": "a.b", "options": {"side_tables": ["a.b_lakecdc_files"]}},
    {"job": "remove_orphan_files", "tables": ["a.b"]},
]


def govern(*steps: dict[str, Any], **arguments: Any) -> GovernOperator:
    defaults = {"task_id": "t", "catalog_conn_id": "lake", "tables": ["a.b", "c.d"], "steps": list(steps) or STEPS}
    return GovernOperator(**{**defaults, **arguments})


def steps_of(spark_submit: FakeSpark) -> list[tuple[str, list[str], list[str]]]:
    """Return job, tables and side tables of each step submitted last."""
    spec = spark_submit.calls[-1]["spec"]
    return [
        (step["job"], step.get("tables", spec["tables"]), step.get("options", {}).get("side_tables", []))
        for step in spec["options"]["steps"]
    ]


def test_steps_are_submitted_in_one_application_with_typed_templates(spark_submit: FakeSpark, context: Context) -> None:
    govern(dry_run="True").execute(context)
    (call,) = spark_submit.calls
    assert call["arguments"][-5].endswith("/govern.py")
    options = call["spec"]["options"]
    assert options["dry_run"] is True
    assert options["steps"][0] == {"job": "rewrite_delete_files", "options": {"max_runtime": 60}}
    assert options["steps"][1]["tables"] == ["a.b"]


def test_the_return_value_has_the_outcome_by_table_and_step(spark_submit: FakeSpark, context: Context) -> None:
    spark_submit.behave(
        {
            "rewrite_delete_files a.b": {"snapshot_before": "1", "snapshot_after": "2"},
            "compact_data_files a.b": {"snapshot_before": "2", "snapshot_after": "3", "metrics": {"commits": 1}},
            "remove_orphan_files a.b": {"outcome": "nothing", "snapshot_before": "3", "snapshot_after": "3"},
            "rewrite_delete_files c.d": {"outcome": "nothing", "reason": "no deletes"},
        }
    )
    returned = govern().execute(context)
    table = {name: returned["a.b"][name] for name in ("outcome", "snapshot_before", "snapshot_after")}
    assert table == {"outcome": "done", "snapshot_before": "1", "snapshot_after": "3"}
    assert {job: facts["outcome"] for job, facts in returned["a.b"]["steps"].items()} == {
        **{"rewrite_delete_files": "done", "compact_data_files": "done", "remove_orphan_files": "nothing"},
    }
    assert returned["a.b"]["steps"]["compact_data_files"]["metrics"] == {"commits": 1}
    assert returned["c.d"]["outcome"] == "nothing" and returned["c.d"]["reason"] == "rewrite_delete_files: no deletes"
    assert json.loads(json.dumps(returned)) == returned == context["ti"].xcom[REPORT_KEY]


def test_a_failed_step_is_reported_with_its_table(
    spark_submit: FakeSpark, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    conflict = {"outcome": "conflict", "failure_class": "conflict", "reason": "too late"}
    skipped = {"outcome": "skipped", "reason": "rewrite_delete_files failed before: too late"}
    rest = {f"{job} a.b": skipped for job in ("compact_data_files", "remove_orphan_files")}
    spark_submit.behave({"rewrite_delete_files a.b": conflict, **rest}, exit=3)
    with pytest.raises(JobConflictError) as caught:
        govern().execute(context)
    lines = str(caught.value).splitlines()
    assert lines[0] == "govern failed (conflict) for 1 of 2 tables:"
    assert lines[1:-1] == ["  rewrite_delete_files: a.b: conflict: too late"]
    # a step behind this one skips that table
    left = context["ti"].xcom[REPORT_KEY]
    assert left["a.b"]["outcome"] == "conflict" and left["c.d"]["outcome"] == "done"
    behind = changed(context, ti=TaskInstance(xcom_pull=lambda **_: left))
    govern(after=["t"]).execute(behind)
    assert steps_of(spark_submit) == [
        ("rewrite_delete_files", ["c.d"], []),
        ("compact_data_files", [], ["a.b_lakecdc_files"]),
        ("remove_orphan_files", [], []),
    ]
    log = capsys.readouterr().out
    assert ": 1 conflict, 1 done, 2 skipped" in log


def test_tables_of_a_run_can_be_selected(spark_submit: FakeSpark, context: Context) -> None:
    govern(only="c.d").execute(context)
    assert steps_of(spark_submit) == [
        ("rewrite_delete_files", ["c.d"], []),
        ("compact_data_files", [], []),
        ("remove_orphan_files", [], []),
    ]
    with pytest.raises(AirflowSkipException):
        govern(only="x.y").execute(context)


def test_a_changed_table_raises_one_event_and_a_planned_one_none(spark_submit: FakeSpark, context: Context) -> None:
    added: list[tuple[Any, dict[str, Any]]] = []

    class Events(dict[Any, Any]):
        def __missing__(self, key: Any) -> Any:
            return self

        def add(self, asset: Any, extra: dict[str, Any]) -> None:
            added.append((asset, extra))

    # the step of orphans is dry by default
    steps = [*STEPS[:2], {"job": "remove_orphan_files", "tables": ["a.b", "e.f"]}]
    outlets = [tables_alias("lake")]
    govern(*steps, outlets=outlets).execute(changed(context, outlet_events=Events()))
    assert [asset for asset, _ in added] == [table_asset("lake", name) for name in ("a.b", "c.d")]
    assert added[0][1]["job"] == "govern" and set(added[0][1]["steps"]) == {step["job"] for step in steps}
    added.clear()
    govern(*steps, outlets=outlets, dry_run=True).execute(changed(context, outlet_events=Events()))
    assert added == []


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"job": "ingest"}], "options.steps.0., ingest: This job cannot be a step"),
        (["rewrite_delete_files"], "steps must be a list of objects"),
        ("rewrite_delete_files", "steps must be a list of objects"),
        ([], "names no step"),
    ],
)
def test_invalid_steps_are_refused_before_spark(
    spark_submit: FakeSpark, context: Context, steps: Any, message: str
) -> None:
    operator: LakecdcJobOperator = govern(steps=steps)
    with pytest.raises(JobBadInputError, match=message):
        operator.execute(context)
    assert spark_submit.calls == []
