"""The configuration of the DAG files."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from croniter import croniter_range

from airflow_provider_lakecdc.templates import Schedules, groups_of_tables, load_config, parse_config
from airflow_provider_lakecdc.templates.schedules import DAGS
from airflow_provider_lakecdc.templates.schema import config_schema
from lakecdc.contract.errors import SpecError
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.target import parse_targets

ROOT = Path(__file__).resolve().parents[3]
NIGHT = {"begins": "22:00", "ends": "06:00"}
COUNTED = {"type": "row_count", "min": 1}
FULL: dict[str, Any] = {
    "catalog_conn_id": "lake",
    "source_conn_id": "shop_db",
    "source": {"type": "postgres", "slot": "lakecdc_shop"},
    "targets": [{"table": "shop.orders", "key": ["id"], "partition_by": ["bucket(8, id)"]}, {"table": "shop.items"}],
    "spark": {"conn_id": "spark_x", "conf": {"spark.sql.shuffle.partitions": "16"}, "driver_memory": "2g"},
    "options": {
        "compact_data_files": {"min_input_files": 3, "max_runtime": 60},
        "hourly_governance.compact_data_files": {"max_runtime": 30.0},
    },
    "schedules": {"ingest": "*/5 * * * *", "nightly_governance": None},
}


def test_json_becomes_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FULL))
    monkeypatch.setenv("LAKECDC_CONFIG", str(path))
    loaded = load_config()
    assert loaded == parse_config(FULL)
    assert loaded.maintained_tables == ["shop.orders", "shop.items"]
    assert loaded.spark.arguments() == FULL["spark"]
    assert (loaded.schedules.ingest, loaded.schedules.hourly_governance) == ("*/5 * * * *", "30 * * * *")


def test_airflows_setting_is_used_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FULL))
    monkeypatch.setenv("AIRFLOW__LAKECDC__CONFIG_FILE", str(path))
    assert load_config().catalog == "lake"


def test_without_either_the_error_names_the_setting() -> None:
    with pytest.raises(SpecError, match=r"Set the environment variable LAKECDC_CONFIG, or config_file in"):
        load_config()


def test_schedules_do_not_collide() -> None:
    begin = datetime(2026, 1, 1)
    crons = [getattr(Schedules(), dag) for dag in DAGS]
    starts = [start for cron in crons for start in croniter_range(begin, begin + timedelta(days=7), cron)]
    assert len(starts) > 2 * 7 * 24 and len({*starts}) == len(starts)


def test_the_documented_example_is_valid() -> None:
    import airflow_provider_lakecdc.templates.config as config

    text = (config.__doc__ or "").split("::", 1)[1]
    assert parse_config(json.loads(text)).target_tables == ["shop.orders"]


def test_options_of_a_dag_override_those_of_the_job_and_the_templates() -> None:
    config = parse_config(FULL)
    loaded = config.job_options("hourly_governance", "compact_data_files", min_input_files=10, delete_ratio=0.9)
    assert loaded == {"min_input_files": 3, "max_runtime": 30.0, "delete_ratio": 0.9}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"catalogue": "x"}, "catalog"),
        ({"spark": {"master": "local"}}, "master"),
        ({"options": {"compact": {}}}, "compact_data_files"),
        ({"options": {"compact_data_files": {"min_files": 3}}}, "min_input_files"),
        ({"options": {"compact_data_files": {"min_input_files": "3"}}}, "int"),
        ({"tables_per_application": "all"}, "tables_per_application"),
        ({"schedules": {"ingest": "every hour"}}, "schedules.ingest 'every hour' is not"),
        ({"documents_max_age": 3600}, "documents_max_age is 3600.*a day"),
        ({"audit_max_age": 3600}, "audit_max_age is 3600.*30 days"),
        ({"schedules": {"nightly_governance": "61 * * * *"}}, "schedules.nightly_governance '61"),
        ({"schedules": {"assets": {"daily": []}}}, "Unknown key 'daily' in schedules.assets"),
        ({"schedules": {"assets": {"ingest": ["tables"]}}}, "each run would start the next"),
        ({"schedules": {"assets": {"ingest": ["shop.orders"]}}}, "'shop.orders', which is not an asset URI"),
        ({"schedules": {"debt": {}}}, "At least one of max_equality_delete_files"),
        (
            {"schedules": {"debt": {"max_equality_deletes": 1}, "assets": {"hourly_governance": ["tables"]}}},
            "has both debt and assets",
        ),
        ({"schedules": {"debt": {"max_equality_deletes": 1}}, "tables": ["shop.*"]}, "needs tables that are named"),
        (
            {"schedules": {"debt": {"max_equality_deletes": 1}}, "policy": {"*": {"window": NIGHT}}},
            "policy of '\\*' has a window",
        ),
        ({"schedules": {"timezone": "Mars/Olympus"}}, "schedules.timezone is 'Mars/Olympus'"),
        ({"retention": {"shop.order": {"time_column": "at", "max_age": 1}}}, "shop.orders"),
        ({"retention": {"shop.orders": {"max_age": 1}}}, "retention.shop.orders.time_column is missing"),
        ({"retention": {"shop.orders": {"time_column": "at", "max_age": 0}}}, "max_age of 'at' must be above 0"),
        (
            {"options": {"nightly_governance.check_tables": {"checks": {"shop.order": [COUNTED]}}}},
            "'shop.order' in options.nightly_governance.check_tables.checks",
        ),
        ({"options": {"check_tables": {"checks": {"shop.orders": [COUNTED | {"min": None}]}}}}, "has no bounds"),
        ({"start_date": "first of May"}, "start_date is 'first of May'"),
    ],
)
def test_invalid_members_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_config({**FULL, **change})


@pytest.mark.parametrize(("content", "message"), [(None, "Cannot read"), ("{", "not JSON")])
def test_an_unusable_file_is_an_error(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=message):
        load_config(path)


def test_every_job_accepts_options() -> None:
    assert parse_config({"options": {job: {"dry_run": True} for job in OPTIONS}})


def test_the_published_schema_accepts_what_the_code_accepts() -> None:
    published = json.loads((ROOT / "docs" / "lakecdc.schema.json").read_text())
    assert published == json.loads(json.dumps(config_schema()))
    jsonschema.Draft202012Validator.check_schema(published)
    check = jsonschema.Draft202012Validator(published).is_valid
    policy = {"shop.*": {"allow": ["*"], "window": {"begins": "22:00", "ends": "06:00"}, "reads": 3}}
    right = {**FULL, "policy": policy, "$schema": "lakecdc.schema.json"}
    assert check(right) and check({}) and parse_config(right)
    mistakes: list[dict[str, Any]] = [
        {"tabels": []},
        {"policy": {"*": {"alow": []}}},
        {"options": {"compact_data_files": {"min_files": 1}}},
        {"options": {"weekly.compact_data_files": {}}},
        {"budgets": {"ingest": 1}},
        {"retention": {"shop.orders": {"time_column": "at"}}},
    ]
    for wrong in mistakes:
        assert not check(wrong), wrong
        with pytest.raises(SpecError):
            parse_config(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": ["id"]},
        {"clean": {"renamed": {}}},
        {"checks": [{"type": "not_null", "column": "id"}]},
        {"mode": "upsrt"},
    ],
)
def test_the_schema_refuses_a_wrong_member_of_a_target(wrong: dict[str, Any]) -> None:
    check = jsonschema.Draft202012Validator(config_schema()).is_valid
    target = {"table": "shop.orders", "key": ["id"], "checks": [{"type": "not_null", "columns": ["id"]}]}
    assert check({"targets": [target]})
    assert not check({"targets": [target | wrong]})
    with pytest.raises(SpecError):
        parse_targets([target | wrong])


@pytest.mark.parametrize("wrong", [{"slots": "shop"}, {"type": "postgresql"}, {"topics": ["shop"]}, {"slot": 1}])
def test_the_schema_refuses_a_wrong_member_of_a_source(wrong: dict[str, Any]) -> None:
    check = jsonschema.Draft202012Validator(config_schema()).is_valid
    source = {"type": "postgres", "slot": "shop"}
    assert check({"source": source})
    assert not check({"source": source | wrong})
    # the connection may supply all but the type
    assert check({"source": {"type": "postgres"}}) and not check({"source": {"slot": "shop"}})


@pytest.mark.parametrize(
    ("size", "groups"),
    [(0, [["a", "b", "c"]]), (1, [["a"], ["b"], ["c"]]), (2, [["a", "b"], ["c"]]), (9, [["a", "b", "c"]])],
)
def test_tables_are_divided_into_groups(size: int, groups: list[list[str]]) -> None:
    assert groups_of_tables(["a", "b", "c"], size) == groups


def test_groups_of_zero_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="skipped"):
        groups_of_tables([])
    with pytest.raises(ValueError, match="-1"):
        groups_of_tables(["a"], -1)


def test_history_tables_are_maintained_with_their_targets() -> None:
    targets = [{"table": "shop.orders", "history_table": "shop.orders_history"}, {"table": "shop.items"}]
    config = parse_config({"targets": targets})
    assert config.target_tables == ["shop.orders", "shop.items"]
    assert config.maintained_tables == ["shop.orders", "shop.items", "shop.orders_history"]
    assert parse_config({"targets": targets, "tables": ["shop.items"]}).maintained_tables == ["shop.items"]
