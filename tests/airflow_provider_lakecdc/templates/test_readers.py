"""Readers of the whole configuration, of a namespace and of a target."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.templates import ingest_dag, parse_config
from lakecdc.contract.errors import SpecError

SOURCE = {"source": {"type": "postgres", "slot": "s"}, "source_conn_id": "shop_db"}


def test_the_most_specific_readers_count() -> None:
    parsed = parse_config(
        {
            "readers": ["spark"],
            "policy": {"shop.*": {"readers": ["snowflake"]}, "shop.open": {"readers": []}},
            "targets": [
                {"table": "crm.people"},
                {"table": "shop.orders"},
                {"table": "shop.open"},
                {"table": "shop.items", "readers": ["databricks"]},
                {"table": "shop.own", "readers": []},
                {"table": "log.{table}", "source_tables": ["x"]},
            ],
        }
    )
    readers = {target["table"]: target.get("readers") for target in parsed.complete_targets}
    assert readers == {
        "crm.people": ["spark"],
        "shop.orders": ["snowflake"],
        "shop.open": None,
        "shop.items": ["databricks"],
        "shop.own": [],
        "log.{table}": ["spark"],
    }


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("shop.{table}", "shop.orders"),
        ("shop.{table}", "*.orders"),
        ("shop.{table}", "shop.o*"),
        ("{schema}.{table}", "crm.*"),
    ],
)
def test_readers_of_some_tables_of_one_target_are_refused(target: str, pattern: str) -> None:
    targets = [{"table": target, "source_tables": ["x"]}]
    with pytest.raises(SpecError, match="readers for some tables of a target that feeds many"):
        parse_config({"targets": targets, "policy": {pattern: {"readers": ["snowflake"]}}})
    for other in ({pattern: {"reads": 2.0}}, {"legal.*": {"readers": ["snowflake"]}}, {"*": {"readers": ["athena"]}}):
        if target != "{schema}.{table}" or "legal.*" not in other:
            parse_config({"targets": targets, "policy": other})
    own = [{**targets[0], "readers": []}]
    assert parse_config({"targets": own, "policy": {pattern: {"readers": ["snowflake"]}}})


def test_unknown_readers_are_refused() -> None:
    for config in ({"readers": ["x"]}, {"policy": {"shop.*": {"readers": ["x"]}}}):
        with pytest.raises(SpecError, match=r"readers\[0\] is 'x'\. It must be one of 'athena', 'bigquery'"):
            parse_config(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"readers": ["athena", "databricks"]}, r"shop\.orders: No table of .* Amazon Athena and Databricks"),
        (
            {"policy": {"shop.*": {"readers": ["databricks"]}}},
            r"shop\.items: .* version 2 .* Databricks Runtime 18 reads",
        ),
        ({"targets": [{"table": "shop.orders", "readers": ["snowpipe"]}]}, "'snowpipe'"),
    ],
)
def test_settings_that_readers_cannot_read_are_import_errors(settings: dict[str, Any], message: str) -> None:
    targets = [{"table": "shop.orders"}, {"table": "shop.items", "format_version": 2}]
    with pytest.raises(SpecError, match=message):
        ingest_dag(parse_config({**SOURCE, "targets": targets, **settings}))


def test_tasks_get_the_targets_with_their_readers() -> None:
    targets = [{"table": "shop.orders"}, {"table": "shop.items", "readers": []}]
    dag = ingest_dag(parse_config({**SOURCE, "targets": targets, "readers": ["databricks"]}))
    task = dag.get_task("ingest")
    assert isinstance(task, MappedOperator)
    assert task.partial_kwargs["targets"] == [
        {"table": "shop.orders", "readers": ["databricks"]},
        {"table": "shop.items", "readers": []},
    ]
