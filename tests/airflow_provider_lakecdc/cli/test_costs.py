"""The command ``costs`` over rows recorded by operators, with prices and a log of reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lakecdc.contract.report import TableReport
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.airflow_provider_lakecdc.cli.test_history import audited, ran
from tests.airflow_provider_lakecdc.tables import FedTable

__all__ = ["audited"]
METRICS = {"core_seconds": 1800.0, "data_files_before": 12, "data_files_after": 2}


@pytest.fixture
def config(tmp_path: Path, lake: dict[str, str]) -> str:
    catalog = FedTable.open(lake)
    catalog.create_namespace_if_not_exists("ops")
    reads = pa.table(
        {"read": ["shop.orders"] * 14, "at": pa.array([datetime.now(UTC)] * 14, pa.timestamp("us", "UTC"))}
    )
    catalog.create_table("ops.queries", reads.schema).append(reads)
    path = tmp_path / "lakecdc.json"
    log = {"table": "ops.queries", "name_column": "read", "time_column": "at"}
    prices = {"core_hour": 0.5, "thousand_reads": 2.0, "currency": "EUR"}
    path.write_text(json.dumps({"catalog_conn_id": "lake", "tables": ["shop.*"], "prices": prices, "query_log": log}))
    return str(path)


def test_nights_and_months_have_a_price(lakecdc: Lakecdc, config: str) -> None:
    for days in (1, 10):
        orders = TableReport("shop.orders", "done", metrics=METRICS)
        ran(
            "compact_data_files", timedelta(days=days), orders, TableReport("shop.items", "failed", "broken", "unknown")
        )
    document = lakecdc("costs", "--config", config, "--json").document
    assert document["currency"] == "EUR" and document["days"] == pytest.approx(10, abs=0.1)
    # both nights have the run id of the test
    (run,) = document["runs"]
    assert (run["core_seconds"], run["cost"], run["unmeasured"]) == (3600, 0.5, 2)
    orders, items = document["tables"]
    assert (orders["table"], orders["cost"], orders["files_spared"], orders["reads_per_day"]) == (
        "shop.orders",
        0.5,
        20,
        2,
    )
    assert orders["cost_month_extrapolated"] == pytest.approx(0.5 * 30.4375 / 10, rel=0.02)
    assert orders["spared_estimated"] == pytest.approx((10 * 1 + 10 * 10) * 2 / 1000 * 2.0, abs=0.01)
    assert (items["core_seconds"], items["unmeasured"]) == (0, 2)
    shown = lakecdc("costs", "--config", config).out
    assert "0.50 EUR" in shown and "extrapolated from 10.0 days" in shown and "0.44 EUR" in shown


def test_without_prices_and_log_no_money_is_shown(lakecdc: Lakecdc) -> None:
    assert lakecdc("costs", "--catalog", "lake").out.strip() == "No matching rows are recorded."
    ran("compact_data_files", timedelta(hours=1), TableReport("shop.orders", "done", metrics=METRICS))
    (table,) = lakecdc("costs", "--catalog", "lake", "--json").document["tables"]
    assert table["core_seconds"] == 1800 and table["cost"] is None and table["requests_spared"] is None
    assert lakecdc("costs", "--catalog", "lake", "--since", "30min").out.strip() == "No matching rows are recorded."
