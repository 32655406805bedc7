"""One assessment per table decides on its needs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecdc.governance import assess_tables, table_assessment
from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Assessment, Steps, parse_assessment
from airflow_provider_lakecdc.governance.discovery import SelectedTables, TableSelection
from airflow_provider_lakecdc.governance.table_assessment import _pressing
from airflow_provider_lakecdc.operators.plan import dry_runs_of, tasks_of
from lakecdc.contract.protection import Protection
from lakecdc.contract.spec import loads
from lakecdc.metadata.plan import Action, choose
from lakecdc.metadata.policy import (
    ALLOW,
    APPROVE,
    EXPIRE_PARTITIONS,
    KEEPING,
    MIN_ROW_AGE,
    OWN,
    TablePolicy,
    Window,
)
from tests.airflow_provider_lakecdc.tables import FedTable

JOBS = ("rewrite_delete_files", "compact_data_files", "expire_snapshots", "clean_side_tables")
ORPHANS = "remove_orphan_files"
BESIDE: dict[str, list[str]] = {"compact_data_files": [], "expire_snapshots": ["shop.more"]}


@pytest.fixture
def shop(lake: dict[str, str]) -> Any:
    """Return a function that makes tables with the given numbers of small files and returns their catalog."""

    def make(**files: int) -> SimpleNamespace:
        for name, count in files.items():
            table = FedTable(lake, f"shop.{name}")
            for _ in range(count):
                table.ingest(None)
        return SimpleNamespace(load=lambda: FedTable.open(lake))

    return make


def needs(assessment: Assessment) -> set[tuple[str, str]]:
    return {(action.table.removeprefix("shop."), action.job) for action in assessment.actions}


def steps(**own: Any) -> Steps:
    return Steps({job: {} for job in JOBS}, BESIDE, own)


def test_only_tables_that_need_work_are_planned(shop: Any) -> None:
    assessment = assess(shop(orders=6, items=1), TableSelection(("shop.orders", "shop.items")), steps())
    assert needs(assessment) == {("orders", "compact_data_files")}
    (action,) = assessment.actions
    assert action.benefit == 5 and action.core_seconds == action.guessed_core_seconds and action.core_seconds
    assert "6 files" in action.reason and action.due is None
    items = assessment.tables[1]
    assert items.idle.keys() == set(JOBS) - {"clean_side_tables"}
    assert items.health and items.health["score"] == 100 and items.health["written_at"]
    assert items.health["source_lag_seconds"] is None
    assert parse_assessment(loads(assessment.to_json())) == assessment


def test_side_tables_get_only_their_own_jobs(shop: Any) -> None:
    catalog = shop(orders=1, orders_lakecdc_deletes=6, more=6, history=6)
    assessment = assess(catalog, TableSelection(("shop.orders",)), steps(), history={"shop.orders": "shop.history"})
    assert needs(assessment) == {
        ("orders_lakecdc_deletes", "compact_data_files"),
        ("history", "compact_data_files"),
        ("orders", "clean_side_tables"),
    }
    assert {each.table: each.beside for each in assessment.tables}["shop.orders_lakecdc_deletes"] == "shop.orders"
    # the one in the configuration is for one of the jobs alone, and needs nothing of it
    assert next(each for each in assessment.tables if each.table == "shop.more").idle.keys() == {"expire_snapshots"}
    narrowed = assess(catalog, TableSelection(("shop.orders",)), steps(), only=("shop.orders",))
    assert {each.table for each in narrowed.tables} == {"shop.orders", "shop.orders_lakecdc_deletes"}
    (tasks,) = tasks_of(choose(assessment.actions), assessment, JOBS)
    assert tasks["compact_data_files"]["tables"] == ["shop.orders_lakecdc_deletes", "shop.history"]
    assert tasks["rewrite_delete_files"] == {}


def test_policies_define_when_and_how(shop: Any) -> None:
    now = datetime.now(UTC)
    begins, ends = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (2, 3))
    policies = {
        "*": TablePolicy(options={"compact_data_files": {"min_input_files": 7}}, reads=4),
        "shop.b": TablePolicy(window=Window(begins, ends)),
        "shop.c": TablePolicy(options={"compact_data_files": {"min_input_files": 3}}, max_wait=0),
    }
    assessment = assess(
        shop(a=7, b=7, c=6, d=6), TableSelection(tuple(f"shop.{name}" for name in "abcd"), (), policies), steps()
    )
    assert needs(assessment) == {("a", "compact_data_files"), ("c", "compact_data_files")}
    a, c = assessment.actions
    assert (a.benefit, a.options, a.due) == (24, {"min_input_files": 7}, None)
    assert c.options == {"min_input_files": 3} and c.due and "waiting for" in c.due
    assert [(each.table, each.job) for each in assessment.skipped] == [("shop.b", "compact_data_files")]
    assert f"from {begins} to {ends}" in assessment.skipped[0].reason
    # tables with different options have separate tasks
    tasks = tasks_of(choose(assessment.actions), assessment, JOBS)
    assert [each["compact_data_files"]["tables"] for each in tasks] == [["shop.a"], ["shop.c"]]
    assert tasks[1]["compact_data_files"]["policy_options"] == {"min_input_files": 3}
    predicted = tasks[0]["compact_data_files"]["predicted_core_seconds"]
    assert predicted == {"compact_data_files": {"shop.a": a.core_seconds}}


def test_a_low_score_makes_the_most_valuable_job_due(shop: Any) -> None:
    policies = {"shop.b": TablePolicy(min_score=90), "shop.c": TablePolicy(min_score=50)}
    assessment = assess(shop(a=9, b=9, c=9), TableSelection(("shop.a", "shop.b", "shop.c"), (), policies), steps())
    due = {each.table: each.due for each in assessment.actions}
    (score,) = {each.health["score"] for each in assessment.tables if each.health}
    assert 50 < score < 90
    assert due["shop.a"] is due["shop.c"] is None
    assert f"score {score:g} is below 90" in str(due["shop.b"])
    assert [each.table for each in choose(assessment.actions, budget=0).chosen] == ["shop.b"]


def test_of_several_jobs_the_one_worth_most_points_is_pressing() -> None:
    lost = {"deletes": 9.0, "small_files": 12.0, "overlap": 3.0, "manifests": 0.0, "snapshots": 4.0}
    health = {"score": 72.0, "lost": lost}
    assert list(_pressing(health, ("compact_data_files", "rewrite_delete_files"), 80)) == ["compact_data_files"]
    assert list(_pressing(health, ("rewrite_delete_files", "sort_data_files"), 80)) == ["rewrite_delete_files"]
    assert not _pressing(health, ("rewrite_manifests", "expire_snapshots"), 80), "they do not raise the score"
    assert not _pressing(health, ("compact_data_files",), 72) and not _pressing(None, ("compact_data_files",), 72)


def test_rows_expire_only_in_tables_with_a_retention(shop: Any) -> None:
    retention = {"time_column": "at", "max_age": 86400.0, "allow_row_deletes": False}
    jobs = Steps({"expire_partitions": {"max_partitions": 9}}, own={"expire_partitions": {"shop.a": retention}})
    catalog = shop(a=1, b=1)
    assessment = assess(catalog, TableSelection(("shop.a", "shop.b")), jobs)
    assert needs(assessment) == {("a", "expire_partitions")}
    assert assessment.actions[0].options == retention and "own policy" not in assessment.actions[0].reason
    with catalog.load().load_table("shop.a").transaction() as changes:
        changes.set_properties({MIN_ROW_AGE: "172800"})
    (action,) = assess(catalog, TableSelection(("shop.a",)), jobs).actions
    assert action.options == {**retention, "max_age": 172800, "older_than": None}
    assert "own policy keeps what is younger than 172800 s" in action.reason


def test_approval_is_required_where_configuration_or_table_require_it(shop: Any) -> None:
    jobs = Steps({ORPHANS: {"dry_run": False}}, {ORPHANS: []})
    policies = {
        "shop.a": TablePolicy(approve=(ORPHANS,)),
        "shop.dry": TablePolicy(approve=(ORPHANS,), options={ORPHANS: {"dry_run": True}}),
    }
    catalog = shop(a=1, a_lakecdc_deletes=1, own=1, dry=1, free=1)
    with catalog.load().load_table("shop.own").transaction() as changes:
        changes.set_properties({APPROVE: ORPHANS})
    selection = TableSelection(tuple(f"shop.{name}" for name in ("a", "own", "dry", "free")), (), policies)
    assessment = assess(catalog, selection, jobs)
    # a dry run removes nothing
    assert {action.table for action in assessment.actions if action.approve} == {
        *("shop.a", "shop.a_lakecdc_deletes", "shop.own")
    }
    plan = choose(assessment.actions, asks=[ORPHANS])
    assert [each[ORPHANS]["tables"] for each in tasks_of(plan, assessment, [ORPHANS])] == [["shop.dry"], ["shop.free"]]
    (dry,) = dry_runs_of(plan, assessment, [ORPHANS])
    assert dry["remove_orphan_files_dry_run"]["tables"] == ["shop.a", "shop.own"]
    assert dry["remove_orphan_files_dry_run"]["policy_options"] == {
        **{"dry_run": True, "side_tables": ["shop.a_lakecdc_deletes"]},
        "protection": {
            "shop.a": asdict(Protection(approve=True)),
            "shop.own": asdict(Protection(approve=True)),
            "shop.a_lakecdc_deletes": asdict(Protection(approve=True, beside=("shop.a",))),
        },
    }


def test_a_policy_does_not_make_a_dry_run_real(shop: Any) -> None:
    policies = {"*": TablePolicy(approve=(ORPHANS,), options={ORPHANS: {"dry_run": False}})}
    catalog, selection = shop(a=1), TableSelection(("shop.a",), (), policies)
    for given in ({"dry_run": True}, dict[str, Any]()):
        (real,) = assess(catalog, selection, Steps({ORPHANS: given})).actions
        assert (real.approve, real.options) == (True, {"dry_run": False})
        (dry,) = assess(catalog, selection, Steps({ORPHANS: given}), is_dry=True).actions
        assert dry.approve is False and {**given, **dry.options} == {"dry_run": True}


@pytest.mark.parametrize("own", [{}, {MIN_ROW_AGE: "10 years"}, {f"{OWN}approval": ORPHANS}])
def test_nothing_is_removed_from_an_unreadable_table(
    shop: Any, monkeypatch: pytest.MonkeyPatch, own: dict[str, str]
) -> None:
    retention = {"time_column": "at", "max_age": 86400.0, "allow_row_deletes": False}
    options: dict[str, dict[str, Any]] = {
        ORPHANS: {"dry_run": False},
        **{job: {} for job in (*JOBS, EXPIRE_PARTITIONS)},
    }
    jobs = Steps(options, {**BESIDE, ORPHANS: []}, {EXPIRE_PARTITIONS: {"shop.a": retention}})
    catalog = shop(a=9, a_lakecdc_deletes=9, fine=1, fine_lakecdc_deletes=1, lakecdc_quarantine=9)
    with catalog.load().load_table("shop.a").transaction() as changes:
        changes.set_properties({"write.format.default": "parquet", **own})

    def once(table: Any, *_: Any) -> Any:
        if table.name() == ("shop", "a") and not own:
            raise OSError("503 Slow Down")
        return assess_loaded(table, *_)

    assess_loaded = table_assessment.assess_loaded
    monkeypatch.setattr(assess_tables, "assess_loaded", once)
    assessment = assess(catalog, TableSelection(("shop.a", "shop.f*"), (), {"*": TablePolicy(("*",))}), jobs)
    assert {action.job for action in assessment.actions if action.table.startswith("shop.a")} <= {*KEEPING}
    removing = {action.table for action in assessment.actions if action.job == ORPHANS}
    assert removing == {"shop.fine", "shop.fine_lakecdc_deletes"}
    # the side tables of both
    assert ("lakecdc_quarantine", "compact_data_files") in needs(assessment)
    (error,) = assessment.unreadable.items()
    assert error[0] == "shop.a" and next(iter(own), "OSError: 503 Slow Down") in error[1]
    # a table with an unknown policy is left alone
    assert bool({action.job for action in assessment.actions if action.table == "shop.a"}) is not bool(own)


def test_the_stricter_policy_applies_to_a_side_table(shop: Any) -> None:
    retention = {"time_column": "at", "max_age": 86400.0, "allow_row_deletes": False}
    history = {"shop.orders": "shop.history"}
    jobs = Steps({EXPIRE_PARTITIONS: {}}, {EXPIRE_PARTITIONS: []}, {EXPIRE_PARTITIONS: {"shop.history": retention}})
    catalog = shop(orders=1, history=1)

    def action(**properties: dict[str, str]) -> Action | None:
        for name, own in properties.items():
            with catalog.load().load_table(f"shop.{name}").transaction() as changes:
                changes.set_properties({MIN_ROW_AGE: "0", APPROVE: "", ALLOW: "*", **own})
        actions = assess(catalog, TableSelection(("shop.orders",)), jobs, history=history).actions
        return next((each for each in actions if each.table == "shop.history"), None)

    longer = {"max_age": 172800, "older_than": None}
    for orders, own in (({MIN_ROW_AGE: "172800"}, {}), ({}, {MIN_ROW_AGE: "172800"})):
        planned = action(orders=orders, history=own)
        assert planned and planned.options == {**retention, **longer}
        assert planned.protection == Protection(min_age=172800, beside=("shop.orders",))
    for orders, own in (({APPROVE: EXPIRE_PARTITIONS}, {}), ({}, {APPROVE: EXPIRE_PARTITIONS})):
        planned = action(orders=orders, history=own)
        assert planned and planned.approve and planned.protection == Protection(approve=True, beside=("shop.orders",))
    for orders, own in (({ALLOW: "none"}, {}), ({}, {ALLOW: "none"})):
        assert action(orders=orders, history=own) is None


def test_a_table_dropped_during_the_listing_is_not_a_failure(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = shop(a=1)
    monkeypatch.setattr(
        assess_tables, "select_tables", lambda *_: SelectedTables(["shop.a", "shop.gone"], frozenset({"shop.a"}))
    )
    assert [each.table for each in assess(catalog, TableSelection(("shop.*",)), steps()).tables] == ["shop.a"]


def test_an_unreadable_table_is_left_to_the_jobs_if_it_is_named(shop: Any, lake: dict[str, str]) -> None:
    catalog = shop(fine=6)
    for name in ("broken", "found"):
        FedTable(lake, f"shop.{name}").break_metadata()
    selection = TableSelection(("shop.fine", "shop.broken", "shop.f*"), (), {"*": TablePolicy(("*",))})
    assessment = assess(catalog, selection, Steps({"compact_data_files": {}}))
    assert needs(assessment) == {(name, "compact_data_files") for name in ("fine", "broken")}
    assert all(a.due and a.core_seconds is None for a in assessment.actions if a.table != "shop.fine")
    assert set(assessment.unreadable) == {"shop.broken", "shop.found"}
    errors = {each.table: each.error for each in assessment.tables}
    assert errors["shop.found"] and errors["shop.fine"] is None
    unreadable: Any = SimpleNamespace(load=lambda: 1 / 0)
    blind = assess(unreadable, TableSelection(("shop.fine",)), steps())
    assert {job for table, job in needs(blind) if table == "fine"} == {"rewrite_delete_files", "compact_data_files"}
    assert list(blind.unreadable) == ["shop.fine"]
    # only the jobs know whether it has side tables
    (tasks,) = tasks_of(choose(blind.actions), blind, JOBS)
    assert tasks["compact_data_files"]["tables"] == ["shop.fine"]
    assert "shop.orders_lakecdc_files" not in tasks["compact_data_files"]["policy_options"]["side_tables"]
    assert "shop.fine_lakecdc_files" in tasks["compact_data_files"]["policy_options"]["side_tables"]


def test_a_missing_table_needs_nothing(shop: Any) -> None:
    assessment = assess(shop(fine=6), TableSelection(("x.absent", "shop.absent", "shop.fine")), steps())
    assert needs(assessment) == {("fine", "compact_data_files")} and not assessment.skipped
    assert {each.table: (each.is_absent, each.error, each.jobs == ()) for each in assessment.tables} == {
        "x.absent": (True, None, True),
        "shop.absent": (True, None, True),
        "shop.fine": (False, None, False),
    } | {each.table: (False, None, False) for each in assessment.tables if each.beside}


def test_tasks_are_grouped_by_job() -> None:
    actions = [Action(name, "sort_data_files", "why") for name in "abc"] + [Action("c", "rewrite_manifests", "why")]
    nothing = Assessment("", ())
    tasks = tasks_of(choose(actions), nothing, ["sort_data_files", "rewrite_manifests"], 2)
    assert [each["sort_data_files"].get("tables") for each in tasks] == [["a", "b"], ["c"]]
    assert [each["rewrite_manifests"].get("tables") for each in tasks] == [["c"], None]
    assert tasks_of(choose([]), nothing, ["sort_data_files"]) == []
