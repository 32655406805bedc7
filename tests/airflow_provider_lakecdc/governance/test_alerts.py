"""Alerts sent in runs of the provider's DAGs."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from jinja2 import Template

from airflow_provider_lakecdc.governance.alerts import alert_missed_deadline, send_alerts
from airflow_provider_lakecdc.governance.assessment import Assessed, Assessment
from airflow_provider_lakecdc.observe.assets import lake_asset
from lakecdc.metadata.alert_state import Alerts
from lakecdc.metadata.freshness import Freshness
from lakecdc.metadata.plan import Plan
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install, Store, TaskInstance, changed
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, dag_file, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable

HOURLY, INGEST = "lakecdc_hourly_governance", "lakecdc_ingest"
UNDONE = "shop.orders (shop-team): compact_data_files has left its work undone for 2 runs; no"
OVER = "shop.orders (shop-team): compact_data_files has done its work again"
LOW = (
    "shop.orders (shop-team): its score is 73.9, below 99; "
    "it lacks 25.2 for small_files, 0.8 for manifests, 0.1 for snapshots"
)


def test_alerts_are_sent_at_the_start_and_at_the_end(
    install: Install, spark_submit: FakeSpark, config: dict[str, Any], lake: dict[str, str], tmp_path: Path
) -> None:
    mail = tmp_path / "folder" / "mail"
    alerts = {
        "score_below": 99,
        "unpaid_runs": 2,
        "notifier": "tests.airflow_provider_lakecdc.notifiers.FileNotifier",
        "arguments": {"path": str(mail), "text": "{{ dag.dag_id }}: {{ hurts }}"},
    }
    changes = {"tables_per_application": 0, "alerts": alerts, "policy": {"*": {"owner": "shop-team"}}}
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    orders = FedTable(lake)
    FedTable(lake, "shop.items").ingest(FIVE)
    for _ in range(12):
        orders.ingest(FIVE)
    # a run's conf stays with the DAG it was tested on
    dry, dag = (install(HOURLY, dag_file(HOURLY)) for _ in range(2))

    def run_report(state: str = "failed", **conf: Any) -> dict[str, list[str]]:
        run = dry.test(run_conf=conf) if conf else dag.test()
        assert (run.state, states(run)["report"]) == (state, ["success"])
        return xcoms(run.run_id).get("hurts", [{}])[0]

    spark_submit.behave({"shop.orders": {"outcome": "failed", "failure_class": "bad input", "reason": "no"}}, exit=4)
    # a dry run repairs nothing and sends no alert
    assert run_report(dry_run=True) == {}
    # the next run repeats what the notifier rejected
    assert states(dag.test())["report"] == ["failed"]
    mail.parent.mkdir()
    assert run_report() == {"began": [LOW], "over": []}
    assert run_report() == {"began": [UNDONE], "over": []}
    spark_submit.behave()
    assert run_report("success") == {"began": [], "over": [OVER]}
    assert mail.read_text().splitlines() == [f"{HOURLY}: {line}" for line in (LOW, UNDONE, OVER)]


def test_missed_freshness_alerts_once_and_again_on_recovery(
    install: Install, spark_submit: FakeSpark, config: dict[str, Any], lake: dict[str, str], tmp_path: Path
) -> None:
    mail = tmp_path / "mail"
    notifier = {
        "notifier": "tests.airflow_provider_lakecdc.notifiers.FileNotifier",
        "arguments": {"path": str(mail), "text": "{{ hurts }}"},
    }
    changes = {"freshness": "30m", "alerts": {"missed_freshness": True, **notifier}}
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    spark_submit.behave()
    now = datetime.now(UTC)
    orders, items = FedTable(lake), FedTable(lake, "shop.items")
    orders.ingest((now - timedelta(hours=2)).isoformat())
    items.ingest(now.isoformat())
    dag = install(HOURLY, dag_file(HOURLY))

    def run_report() -> dict[str, list[str]]:
        return xcoms(dag.test().run_id)["hurts"][0]

    (line,) = run_report()["began"]
    assert line.startswith("shop.orders: readers see its source as of ") and "missed by 1 h 30 min" in line
    assert run_report() == {"began": [], "over": []}
    orders.ingest(now.isoformat())
    assert run_report() == {"began": [], "over": ["shop.orders: its promised freshness is kept again"]}
    assert mail.read_text().splitlines() == [line, "shop.orders: its promised freshness is kept again"]


@pytest.mark.parametrize(
    ("alerts", "bad", "stored"),
    [
        (Alerts(missed_freshness=True), {"freshness": Freshness(60.0, None, None)}, "missed_freshness"),
        (Alerts(score_below=60), {"health": {"score": 50.0, "lost": {"small_files": 50.0}}}, "low_scores"),
    ],
    ids=["freshness", "score"],
)
def test_an_alert_is_forgotten_with_its_target_but_not_that_of_another_configuration(
    context: dict[str, Any], alerts: Alerts, bad: dict[str, Any], stored: str
) -> None:
    stores = defaultdict[Asset, Store](Store)
    late = Assessed("shop.orders", **bad)

    def alerted(dag_id: str, *tables: Assessed, is_partial: bool = False) -> tuple[int, Any]:
        given = changed(context, asset_state_store=stores, ti=TaskInstance(dag_id=dag_id))
        assessment = Assessment("2026-01-01T05:00:00+00:00", tables, is_partial=is_partial)
        send_alerts(given, "lake", alerts, assessment, Plan(), [])
        return len(given["ti"].xcom["hurts"]["began"]), stores[lake_asset("lake")].get(stored)

    other = "other_hourly_governance"
    assert alerted(HOURLY, late) == (1, {"shop.orders": [HOURLY]})
    assert alerted(other) == alerted(HOURLY, is_partial=True) == (0, {"shop.orders": [HOURLY]})
    # both have it until one drops it
    assert alerted(other, late) == (0, {"shop.orders": [HOURLY, other]})
    assert alerted(HOURLY) == alerted(other, late) == (0, {"shop.orders": [other]})
    assert alerted(other) == (0, {})
    assert alerted(HOURLY, late)[0] == 1


def test_airflow_alerts_on_a_run_later_than_the_freshness(
    install: Install, config: dict[str, Any], tmp_path: Path
) -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.deadline import Deadline
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.triggers.callback import CallbackTrigger
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    mail, now = tmp_path / "mail", datetime.now(UTC)
    notifier = {
        "notifier": "tests.airflow_provider_lakecdc.notifiers.FileNotifier",
        "arguments": {"path": str(mail), "text": "{{ dag.dag_id }}: {{ hurts }}"},
    }
    changes = {"freshness": "30m", "alerts": {"missed_freshness": True, **notifier}}
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    file = str(install(INGEST, dag_file(INGEST)).fileloc)
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(file, bundle_path=Path(file).parent, bundle_name="dags-folder"), "dags-folder", None)

    async def call(arguments: Mapping[str, Any]) -> list[str]:
        return [event.payload["state"] async for event in CallbackTrigger(**arguments).run()]

    with create_session() as session:
        dag = SerializedDagModel.get_dag(INGEST, session=session)
        assert dag is not None
        run = dag.create_dagrun(
            run_id=f"manual__{now.isoformat()}",
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.QUEUED,
            session=session,
        )
        session.flush()
        deadline = session.query(Deadline).filter(Deadline.dagrun_id == run.id).one()
        assert run.queued_at and deadline.deadline_time == run.queued_at + timedelta(minutes=30)
        # imitate the scheduler once the time has passed, and then the triggerer
        deadline.handle_miss(session)
        called = asyncio.run(call(deadline.callback.trigger.kwargs))
        run_id = run.run_id
        session.rollback()
    assert called == ["running", "success"]
    line = f"{INGEST}: {INGEST}: run {run_id} has not succeeded within the promised freshness of 30m"
    assert mail.read_text().splitlines() == [line]


def test_deadlines_of_backfills_do_not_alert(tmp_path: Path) -> None:
    context = {"dag_run": {"dag_id": INGEST, "dag_run_id": "backfill__1", "run_type": "backfill"}}
    # the notifier does not exist
    asyncio.run(alert_missed_deadline("30m", "no.Notifier", {}, context))


def test_the_mail_of_the_guide_escapes_its_values() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "govern.md").read_text()
    (content,) = re.findall(r'"html_content": "(.*?)"', guide)
    assert "&lt;b&gt;" in Template(content).render(hurts="shop.<b>orders</b>: <b>")
