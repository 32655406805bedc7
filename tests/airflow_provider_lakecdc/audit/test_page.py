"""The page about the audit matches the code."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_lakecdc.audit import record_application, record_health
from airflow_provider_lakecdc.audit.lake_tables import LAKE_TABLES
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.contract.report import TableReport
from tests.airflow_provider_lakecdc.audit.conftest import application
from tests.airflow_provider_lakecdc.home import REPOSITORY

PAGE = Path(REPOSITORY, "docs", "guides", "audit.md").read_text()


def test_the_python_on_the_page_runs(catalog: CatalogConnection) -> None:
    (code,) = re.findall(r"^```python audit\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    metrics = {"core_seconds": 2.0, "data_files_before": 9, "data_files_after": 2}
    run = application(TableReport("shop.orders", "done", metrics=metrics), TableReport("shop.items", "nothing"))
    assert record_application(catalog, run)
    assert record_health(catalog, datetime.now(UTC), {"shop.orders": {"score": 70.0}, "shop.items": {"score": 60.0}})
    names: dict[str, Any] = {}
    exec(code, names)
    assert [row.job for row in names["last"]] == ["compact_data_files"]
    assert [row.table for row in names["worst"]] == ["shop.items", "shop.orders"]
    assert [(cost.table, cost.core_seconds) for cost in names["spent"]] == [("shop.orders", 2.0), ("shop.items", 0.0)]
    assert [(saving.table, saving.data_files) for saving in names["saved"]] == [("shop.orders", 7)]


def test_the_page_lists_every_column() -> None:
    for kind in LAKE_TABLES.values():
        (part,) = re.findall(rf"<!-- columns of {kind.name} -->(.*?)<!-- until here -->", PAGE, re.DOTALL)
        listed = re.findall(r"^\| `(\w+)` \| \w+(, required)? \| (.*?) \|$", part, re.MULTILINE)
        assert listed == [(c.name, ", required" if c.is_required else "", c.doc) for c in kind.columns]
