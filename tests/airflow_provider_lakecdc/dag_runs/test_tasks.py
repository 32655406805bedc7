"""Retries and sensors in runs of other DAGs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecdc.lake.tables import read_watermark
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, SIX, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable

RETRYING = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.submit.retry_policy import retry_policy

with DAG("retrying", schedule=None):
    RewriteManifestsOperator.partial(
        task_id="rewrite_manifests",
        catalog_conn_id="lake",
        retries=2,
        retry_delay=timedelta(0),
        retry_policy=retry_policy(timedelta(0)),
    ).expand(tables=[["shop.orders"]])
"""


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("failure_class", "tries"), [("conflict", 3), pytest.param("unknown", 3, marks=pytest.mark.soak), ("bad input", 1)]
)
def test_the_class_of_a_failure_decides_on_the_retry(
    install: Install, spark_submit: FakeSpark, failure_class: str, tries: int
) -> None:
    outcome = {"outcome": "failed", "failure_class": failure_class, "reason": "x"}
    spark_submit.behave({"shop.orders": outcome}, exit=1)
    run = install("retrying", RETRYING).test()
    assert states(run) == {"rewrite_manifests": ["failed"]}
    assert len(spark_submit.calls) == tries


WAITING = """
from airflow.sdk import DAG
from airflow_provider_lakecdc.sensors.watermark import IcebergWatermarkSensor

with DAG("waiting", schedule=None):
    for deferrable in (False, True):
        IcebergWatermarkSensor(
            task_id=f"deferrable_{deferrable}".lower(), table="shop.orders", catalog_conn_id="lake",
            moment="{{ dag_run.conf['moment'] }}", deferrable=deferrable, poke_interval=0.1, timeout=TIMEOUT,
        )
"""


class TestTheSensor:
    """Both ways of waiting, in a DAG run and with a real catalog."""

    def test_it_passes_once_the_moment_is_reached(self, install: Install, lake: dict[str, str]) -> None:
        orders = FedTable(lake)
        orders.ingest(SIX)
        orders.maintain()
        run = install("waiting", WAITING.replace("TIMEOUT", "60")).test(run_conf={"moment": FIVE})
        assert states(run) == {"deferrable_false": ["success"], "deferrable_true": ["success"]}
        assert xcoms(run.run_id)["return_value"] == [SIX, SIX]

    def test_a_deferred_sensor_resumes_when_the_table_is_fed(
        self, install: Install, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        orders = FedTable(lake)
        orders.ingest(FIVE)
        looks: list[Any] = []

        def feed_after_the_first_look(*arguments: Any) -> Any:
            looks.append(watermark := read_watermark(*arguments))
            if len(looks) == 1:
                orders.ingest(SIX)
            return watermark

        monkeypatch.setattr("airflow_provider_lakecdc.sensors.watermark.read_watermark", feed_after_the_first_look)
        source = WAITING.replace("TIMEOUT", "60").replace("(False, True)", "(True,)")
        run = install("waiting", source).test(run_conf={"moment": SIX})
        assert states(run) == {"deferrable_true": ["success"]}
        assert len(looks) == 2


DEBT = """
from airflow.sdk import DAG
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor

with DAG("debt", schedule=None):
    debt = DeleteDebtSensor(
        task_id="debt", tables=["shop.items", "shop.orders"], catalog_conn_id="lake", max_equality_delete_files=1,
        deferrable=True, poke_interval=0.1, timeout=60,
    )
    RewriteDeleteFilesOperator(task_id="pay", tables=debt.output, catalog_conn_id="lake")
"""


def test_the_tables_in_debt_are_passed_to_an_operator(
    install: Install, spark_submit: FakeSpark, lake: dict[str, str]
) -> None:
    orders, items = FedTable(lake), FedTable(lake, "shop.items")
    orders.delete(1, 1)
    items.delete(1)
    run = install("debt", DEBT).test()
    assert states(run) == {"debt": ["success"], "pay": ["success"]}
    assert [call["spec"]["tables"] for call in spark_submit.calls] == [["shop.orders"]]
