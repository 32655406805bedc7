"""What people are told in runs of the provider's own DAGs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Template

from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.dag_runs.support import FIVE, dag_file, states, xcoms
from tests.airflow_provider_lakecdc.tables import FedTable

HOURLY = "lakecdc_hourly_governance"
UNDONE = "shop.orders (shop-team): compact_data_files has left its work undone for 2 runs; no"
OVER = "shop.orders (shop-team): compact_data_files has done its work again"
LOW = (
    "shop.orders (shop-team): its score is 73.9, below 99; "
    "it lacks 25.2 for small_files, 0.8 for manifests, 0.1 for snapshots"
)


def test_people_are_told_when_it_begins_and_when_it_is_over(
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
    # a run's conf stays with the DAG that it was tested on
    dry, dag = (install(HOURLY, dag_file(HOURLY)) for _ in range(2))

    def told(state: str = "failed", **conf: Any) -> dict[str, list[str]]:
        run = dry.test(run_conf=conf) if conf else dag.test()
        assert (run.state, states(run)["report"]) == (state, ["success"])
        return xcoms(run.run_id).get("hurts", [{}])[0]

    spark_submit.behave({"shop.orders": {"outcome": "failed", "failure_class": "bad input", "reason": "no"}}, exit=4)
    # a dry run pays nothing and tells nothing
    assert told(dry_run=True) == {}
    # what the notifier does not take is told by the next run
    assert states(dag.test())["report"] == ["failed"]
    mail.parent.mkdir()
    assert told() == {"began": [LOW], "over": []}
    assert told() == {"began": [UNDONE], "over": []}
    spark_submit.behave()
    assert told("success") == {"began": [], "over": [OVER]}
    assert mail.read_text().splitlines() == [f"{HOURLY}: {line}" for line in (LOW, UNDONE, OVER)]


def test_the_mail_of_the_guide_escapes_what_it_tells() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "govern.md").read_text()
    (content,) = re.findall(r'"html_content": "(.*?)"', guide)
    assert "&lt;b&gt;" in Template(content).render(hurts="shop.<b>orders</b>: <b>")
