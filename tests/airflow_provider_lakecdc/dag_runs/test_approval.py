"""Runs that ask a person for approval."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakecdc.metadata.policy import APPROVE
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, dag_file, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable

ORPHANS = "remove_orphan_files"
#: what a dry run reports of a table with findings
WITH_FINDINGS = {"orphan_files": 3, "orphan_bytes": 4096, "findings": {"uri": "file:///found.jsonl", "sha256": "4f"}}


class TestAnApproval:
    """A run of the weekly DAG that asks a person about two of three tables."""

    @pytest.fixture
    def run(
        self,
        install: Install,
        spark_submit: FakeSpark,
        config: dict[str, Any],
        lake: dict[str, str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> Callable[[Callable[[Any, Any], None]], Any]:
        """Return a function that runs the DAG and calls its argument to answer when the run only waits for that."""
        changes = {
            "tables": ["shop.orders", "shop.items", "shop.free"],
            "options": {ORPHANS: {"dry_run": False}},
            "policy": {"shop.orders": {"approve": [ORPHANS], "owner": "sales"}},
            "statistics": False,
            "tables_per_application": 0,
        }
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        for name in ("orders", "items", "free"):
            FedTable(lake, f"shop.{name}").ingest(FIVE)
        with FedTable.open(lake).load_table("shop.items").transaction() as transaction:
            transaction.set_properties({APPROVE: ORPHANS})
        spark_submit.behave({f"shop.{name}": {"metrics": WITH_FINDINGS} for name in ("orders", "items", "free")})
        return lambda answer: self.ran(install, monkeypatch, answer)

    def ran(self, install: Install, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any, Any], None]) -> Any:
        from airflow.models.hitl import HITLDetail
        from airflow.utils.session import create_session

        sleep = time.sleep

        def respond(seconds: float) -> None:
            # dag.test sleeps while it waits for an answer
            with create_session() as session:
                for request in session.query(HITLDetail).filter(HITLDetail.responded_at.is_(None)).all():
                    # others sleep too; an answer before the task waits would be lost
                    if request.task_instance.state == "awaiting_input":
                        answer(request, session)
            sleep(min(seconds, 0.01))

        monkeypatch.setattr(time, "sleep", respond)
        return install("lakecdc_weekly_governance", dag_file("lakecdc_weekly_governance")).test()

    def test_a_person_approves_one_of_two_tables(self, run: Any, spark_submit: FakeSpark) -> None:
        from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
        from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail

        seen: list[Any] = []

        def approve(request: Any, session: Any) -> None:
            ti = request.task_instance
            seen.append((request.options, request.body, states(ti.dag_run)))
            user: Any = SimpleNamespace(get_id=lambda: "7", get_name=lambda: "ada")
            chosen = UpdateHITLDetailPayload(chosen_options=["shop.items"], params_input={})
            update_hitl_detail(ti.dag_id, ti.run_id, ti.task_id, chosen, user, session)

        ended = run(approve)
        assert ended.state == "success"
        ((options, body, meanwhile),) = seen
        assert options == ["none of them", "shop.orders", "shop.items"]
        assert "| shop.orders | sales | 3 | 4,096 |  |  | file:///found.jsonl | 4f |" in body
        # tables without approval do not wait for it
        assert (meanwhile[ORPHANS], meanwhile["report"]) == (["success"], ["success"])
        free, dry, real = spark_submit.calls
        options_by_table = {call["spec"]["tables"][0]: call["spec"]["options"] for call in (free, real)}
        assert dry["spec"]["tables"] == ["shop.orders", "shop.items"] and dry["spec"]["options"]["dry_run"] is True
        assert (free["spec"]["tables"], options_by_table["shop.free"]["approved"]) == (["shop.free"], None)
        assert real["spec"]["tables"] == ["shop.items"] and options_by_table["shop.items"]["dry_run"] is False
        assert options_by_table["shop.items"]["approved"] == {"shop.items": WITH_FINDINGS["findings"]}
        outcomes = [x["outcomes"] for x in xcoms(ended.run_id)["return_value"] if "outcomes" in x]
        assert {"done": 1, "approval pending": 2} in outcomes and {"done": 1, "not approved": 1} in outcomes

    def test_a_missing_answer_is_a_no(self, run: Any, spark_submit: FakeSpark) -> None:
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        def time_is_up(request: Any, session: Any) -> None:
            request.task_instance.trigger_timeout -= timedelta(days=5, seconds=1)
            session.commit()
            scheduler: Any = SimpleNamespace(log=logging.getLogger())
            SchedulerJobRunner.check_awaiting_input_timeouts(scheduler, session=session)

        ended = run(time_is_up)
        assert ended.state == "success"
        assert states(ended)[f"{ORPHANS}_approval"] == ["success"]
        assert states(ended)[f"{ORPHANS}_approved"] == ["skipped"]
        assert [call["spec"]["options"]["dry_run"] for call in spark_submit.calls] == [False, True]

    @pytest.mark.soak
    def test_no_approval_is_requested_without_findings(self, run: Any, spark_submit: FakeSpark) -> None:
        spark_submit.behave()
        ended = run(lambda *_: pytest.fail("approval was requested"))
        assert ended.state == "success"
        assert states(ended)[f"{ORPHANS}_approval"] == states(ended)[f"{ORPHANS}_approved"] == ["skipped"]
        # of the dry run
        outcomes = [x["outcomes"] for x in xcoms(ended.run_id)["return_value"] if "outcomes" in x]
        assert {"done": 2} in outcomes
