"""The ingest operator: its source, its targets and the runs it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRunType

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.submit import launcher
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import parse_spec
from lakecdc.metadata.source_state import SourceState
from tests.airflow_provider_lakecdc.conftest import DATABASE_SECRET, FakeSpark, changed, connection

pytestmark = pytest.mark.usefixtures("lake")
FILES = {"type": "files", "path": f"{Path(__file__).parent}/*.jsonl", "format": "debezium-json"}
TARGETS = [{"table": "shop.orders", "key": ["id"]}, {"table": "shop.items", "key": ["id"]}]


def ingest(**arguments: Any) -> IngestOperator:
    defaults = {"task_id": "t", "catalog_conn_id": "lake", "source": FILES, "targets": TARGETS}
    return IngestOperator(**{**defaults, **arguments})


@pytest.fixture
def shop_db(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a Postgres connection with a password."""
    connection(
        monkeypatch,
        "shop_db",
        conn_type="postgres",
        host="db.example.com",
        port=5433,
        login="cdc",
        password=DATABASE_SECRET,
        schema="shop",
        extra={"sslmode": "require", "cursor": "dictcursor"},
    )


@pytest.fixture
def any_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every source pass the precheck."""
    answer = SimpleNamespace(returncode=0, stdout=SourceState().to_json())
    monkeypatch.setattr(launcher, "run_probe", lambda *_: answer)


def test_all_targets_are_fed_by_default(spark_submit: FakeSpark, context: Any) -> None:
    assert set(ingest().execute(context)) == {"shop.orders", "shop.items"}
    assert spark_submit.calls[0]["spec"]["source"] == FILES


def test_tables_choose_among_the_targets(spark_submit: FakeSpark, context: Any) -> None:
    ingest(tables=["shop.items"]).execute(context)
    assert [target.table for target in parse_spec(spark_submit.calls[0]["spec"]).targets] == ["shop.items"]
    with pytest.raises(JobBadInputError, match="no target describes"):
        ingest(tables=["shop.customers"]).execute(context)


@pytest.mark.usefixtures("shop_db", "any_source")
def test_a_connection_completes_the_source(spark_submit: FakeSpark, context: Any) -> None:
    ingest(source={"type": "postgres", "slot": "lakecdc"}, source_conn_id="shop_db").execute(context)
    (call,) = spark_submit.calls
    source = parse_spec(call["spec"]).source
    assert isinstance(source, PostgresSource)
    assert source.dsn == "host=db.example.com port=5433 dbname=shop user=cdc sslmode=require"
    assert call["environment"][source.password["env"]] == DATABASE_SECRET
    assert DATABASE_SECRET not in json.dumps([call["arguments"], call["spec"], context["ti"].xcom])


@pytest.mark.usefixtures("shop_db")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"type": "postgres", "slot": "s", "dsn": "host=x"}, "dsn"),
        (FILES, "cannot use the connection"),
    ],
)
def test_a_source_that_contradicts_the_connection_is_refused(
    spark_submit: FakeSpark, context: Any, source: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobBadInputError, match=message):
        ingest(source=source, source_conn_id="shop_db").execute(context)
    assert spark_submit.calls == []


@pytest.mark.parametrize("source", [FILES, {"type": "postgres", "slot": "s", "dsn": "host=x"}])
def test_a_backfill_is_refused_with_the_remedy(spark_submit: FakeSpark, context: Any, source: dict[str, Any]) -> None:
    run = SimpleNamespace(run_type=DagRunType.BACKFILL, run_id="backfill__2026-01-01")
    with pytest.raises(JobBadInputError, match="full load"):
        ingest(source=source).execute(changed(context, dag_run=run))
    assert spark_submit.calls == []


def test_a_plain_text_password_is_refused_without_repeating_it(spark_submit: FakeSpark, context: Any) -> None:
    source = {"type": "postgres", "slot": "s", "dsn": "host=x password=hunter2"}
    with pytest.raises(JobBadInputError, match="literal") as caught:
        ingest(source=source).execute(context)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({**FILES, "path": "/gone/*.jsonl"}, "folder /gone does not exist"),
        ({"type": "mysql", "host": "h", "user": "u", "password": {"env": "NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE"),
    ],
)
def test_permanent_errors_are_refused_before_spark_starts(
    spark_submit: FakeSpark, context: Any, source: dict[str, Any], message: str
) -> None:
    with pytest.raises(JobBadInputError, match=message):
        ingest(source=source).execute(context)
    assert spark_submit.calls == []


def test_the_check_before_spark_has_the_jobs_environment(spark_submit: FakeSpark, context: Any) -> None:
    # a path of another file system is left to the job
    ingest(source={**FILES, "path": "/gone"}, env_vars={"HADOOP_CONF_DIR": "/etc/hadoop"}).execute(context)
    assert len(spark_submit.calls) == 1


def test_a_driver_on_the_cluster_sees_other_files(
    spark_submit: FakeSpark, context: Any, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    connection(monkeypatch, "lake", conn_type="iceberg", extra=lake)
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    ingest(source={**FILES, "path": "/gone"}, durable=False).execute(context)
    assert len(spark_submit.calls) == 1


def test_an_idle_source_succeeds_and_names_the_position(spark_submit: FakeSpark, context: Any) -> None:
    quiet = {"outcome": "nothing", "reason": "no change since 0/16B3748", "metrics": {"position": "0/16B3748"}}
    spark_submit.behave({"shop.orders": quiet})
    facts = ingest().execute(context)["shop.orders"]
    assert (facts["outcome"], facts["metrics"]["position"]) == ("nothing", "0/16B3748")


JDBC = {"type": "jdbc", "url": "jdbc:postgresql://db/shop", "cursor_column": "changed"}


@pytest.mark.usefixtures("any_source")
def test_a_jdbc_source_gets_the_data_interval_also_in_a_backfill(spark_submit: FakeSpark, context: Any) -> None:
    day = {
        "data_interval_start": datetime(2026, 1, 1, tzinfo=UTC),
        "data_interval_end": datetime(2026, 1, 2, tzinfo=UTC),
    }
    run = SimpleNamespace(run_type=DagRunType.BACKFILL, run_id="backfill__2026-01-01")
    ingest(source=JDBC).execute(changed(context, dag_run=run, **day))
    (call,) = spark_submit.calls
    interval = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-02T00:00:00+00:00"}
    assert call["spec"]["source"]["interval"] == interval
    assert "org.postgresql:postgresql" in " ".join(call["arguments"])


def test_a_jdbc_source_without_a_data_interval_is_refused_with_the_remedy(
    spark_submit: FakeSpark, context: Any
) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for ends in ((None, None), (moment, moment)):
        ingestion = ingest(source=JDBC)
        given = changed(context, data_interval_start=ends[0], data_interval_end=ends[1])
        with pytest.raises(JobBadInputError, match="CronDataIntervalTimetable.*logical date"):
            ingestion.execute(given)
    assert spark_submit.calls == []


@pytest.mark.usefixtures("any_source")
def test_a_jdbc_source_with_an_integer_column_uses_a_cursor(spark_submit: FakeSpark, context: Any) -> None:
    source = {**JDBC, "interval": None}
    run = SimpleNamespace(run_type=DagRunType.BACKFILL, run_id="backfill__2026-01-01")
    with pytest.raises(JobBadInputError, match="full load"):
        ingest(source=source).execute(changed(context, dag_run=run))
    ingest(source=source).execute(context)
    assert spark_submit.calls[0]["spec"]["source"]["interval"] is None
