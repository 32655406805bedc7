"""The DAG of the page on dbt, run as printed, with its project."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakecdc.metadata import names
from local_services.reader_tools import DBT
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import Install
from tests.airflow_provider_lakecdc.dag_runs.support import states
from tests.airflow_provider_lakecdc.tables import position
from tests.lakes import open_catalog

PAGE = (home.REPOSITORY / "docs" / "guides" / "dbt.md").read_text()
_FILE = re.compile(r"^```\w+ (\S+\.\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ORDERS = [(1, 1, "2026-01-01T05:00:00"), (2, 1, "2026-01-01T06:00:00"), (3, 2, "2026-01-02T05:00:00")]


@pytest.mark.soak
def test_models_are_built_from_fresh_tables(
    install: Install, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DBT.check()
    monkeypatch.setenv("PATH", f"{DBT.folder}/bin{os.pathsep}{os.environ['PATH']}")
    catalog = open_catalog(lake)
    catalog.create_namespace("shop")
    ordered_at = pa.array([datetime.fromisoformat(at) for *_, at in ORDERS], pa.timestamp("us"))
    orders = {"id": [each[0] for each in ORDERS], "customer": [each[1] for each in ORDERS], "ordered_at": ordered_at}
    fresh = {names.POSITIONS: position(datetime.now(UTC).isoformat()).encode()}
    for name, rows in (("orders", pa.table(orders)), ("customers", pa.table({"id": [1, 2]}))):
        catalog.create_table(f"shop.{name}", rows.schema).append(rows, snapshot_properties=fresh)

    def here(text: str) -> str:
        return text.replace("/opt/dbt", f"{tmp_path}/dbt").replace("/opt/lake", str(tmp_path))

    for name, text in _FILE.findall(PAGE):
        path = tmp_path / "dbt" / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(here(text))
    dag, *_ = re.findall(r"^```python dag\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    run = install("shop_models", here(dag)).test()
    fine = ["success"]
    assert states(run) == {"shop_orders_is_fresh": fine, "shop_customers_is_fresh": fine, "dbt_build": fine}
    with duckdb.connect(str(tmp_path / "dbt" / "shop" / "shop.duckdb")) as built:
        days = built.execute("SELECT day::text, orders FROM orders_by_day ORDER BY day").fetchall()
    assert days == [("2026-01-01", 2), ("2026-01-02", 1)]
