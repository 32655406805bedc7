"""The sensor of watermarks, waiting in the worker and in the triggerer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, TaskDeferralTimeout, TaskDeferred

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.sensors.watermark import IcebergWatermarkSensor
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.contract.errors import SpecError
from tests.airflow_provider_lakecdc.tables import FedTable

FIVE, SIX = "2026-01-01T05:00:00+00:00", "2026-01-01T06:00:00+00:00"


def sensor(**arguments: Any) -> IcebergWatermarkSensor:
    defaults = {"task_id": "wait", "table": "shop.orders", "catalog_conn_id": "lake", "moment": FIVE}
    return IcebergWatermarkSensor(**{**defaults, "poke_interval": 0.01, "timeout": 0.05, **arguments})


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    fed = FedTable(lake)
    fed.ingest(FIVE)
    return fed


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("deferrable", [False, True])
class TestReached:
    """The moment has passed already."""

    def test_it_succeeds_with_the_watermark(self, deferrable: bool, context: Any) -> None:
        assert sensor(deferrable=deferrable).execute(context) == FIVE

    def test_a_moment_with_another_zone_is_compared_as_a_moment(self, deferrable: bool, context: Any) -> None:
        assert sensor(moment="2026-01-01T06:30:00+02:00", deferrable=deferrable).execute(context) == FIVE

    @pytest.mark.parametrize("moment", ["None", "", "soon"])
    def test_a_missing_interval_is_an_error_with_the_remedy(self, deferrable: bool, context: Any, moment: str) -> None:
        with pytest.raises(AirflowFailException, match="CronDataIntervalTimetable"):
            sensor(moment=moment, deferrable=deferrable).execute(context)


@pytest.mark.usefixtures("orders")
def test_it_times_out_in_the_worker(context: Any) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(moment=SIX, deferrable=False).execute(context)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_fresh_table_needs_no_moment(orders: FedTable, deferrable: bool, context: Any) -> None:
    waiting = sensor(moment="None", freshness="30m", deferrable=deferrable)
    with pytest.raises(TaskDeferred if deferrable else AirflowSensorTimeout):
        waiting.execute(context)
    now = datetime.now(UTC).isoformat()
    orders.ingest(now)
    assert waiting.execute(context) == now


def test_a_dag_file_with_an_invalid_duration_is_refused() -> None:
    with pytest.raises(SpecError, match="'half an hour', which is not a duration"):
        sensor(freshness="half an hour")


@pytest.mark.usefixtures("orders")
def test_it_defers_with_its_timeout(context: Any) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor(moment=SIX, deferrable=True).execute(context)
    trigger = deferred.value.trigger
    assert isinstance(trigger, PollingTrigger)
    assert trigger.serialize()[1]["moment"] == SIX
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 0.05


@pytest.mark.usefixtures("orders")
def test_the_triggerer_checks_for_a_sensor_defined_only_in_a_dag_file() -> None:
    class DagSensor(IcebergWatermarkSensor):
        pass

    DagSensor.__module__ = "unusual_prefix_of_a_dag_file"

    trigger = DagSensor(task_id="wait", table="shop.orders", catalog_conn_id="lake", moment=FIVE).trigger()

    async def first_event() -> Any:
        return (await anext(trigger.run())).payload

    assert asyncio.run(first_event()) == {"status": "reached", "result": FIVE}


def test_the_end_of_the_deferral_is_a_sensors_timeout(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_is_up(*_: Any, **__: Any) -> None:
        raise TaskDeferralTimeout("Trigger timeout")

    waiting = sensor(deferrable=True)
    monkeypatch.setattr(waiting, "execute_complete", time_is_up)
    with pytest.raises(AirflowSensorTimeout):
        waiting.resume_execution("execute_complete", {"event": {}}, context)


def test_the_event_of_the_trigger_decides(context: Any) -> None:
    assert sensor().execute_complete(context, {"status": "reached", "result": SIX}) == SIX
    with pytest.raises(LakecdcJobError, match="no catalog"):
        sensor().execute_complete(context, {"status": "error", "message": "no catalog"})
