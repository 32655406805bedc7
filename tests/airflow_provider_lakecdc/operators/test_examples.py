"""The governance DAG on the page of the operators, run by Airflow with a fake spark-submit."""

from __future__ import annotations

import re
from typing import Any

from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.tables import FedTable

PAGE = (home.REPOSITORY / "docs" / "reference" / "operators.md").read_text()
(EXAMPLE,) = [text for text in re.findall(r"```python dag\n(.*?)```", PAGE, re.DOTALL) if '"own_governance"' in text]


def test_the_example_without_templates_runs(install: Install, spark_submit: FakeSpark, lake: dict[str, str]) -> None:
    orders, items = FedTable(lake), FedTable(lake, "shop.items")
    for _ in range(12):
        orders.ingest(None)
    items.ingest(None)
    # without the question, as no person can answer
    run = install("own_governance", EXAMPLE.partition("    # beside the others")[0]).test()
    states = {(ti.task_id, str(ti.state)) for ti in run.get_task_instances()}
    assert ("compact_data_files", "success") in states and ("remove_documents", "success") in states
    assert not {state for _, state in states} & {"failed", "upstream_failed"}
    specs: list[dict[str, Any]] = [call["spec"] for call in spark_submit.calls]
    assert [(spec["job"], spec["tables"]) for spec in specs if spec["job"] == "compact_data_files"] == [
        ("compact_data_files", ["shop.orders"])
    ]
