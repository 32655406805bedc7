"""The DAG of the page on dbt, run as printed, with its project."""

from __future__ import annotations

import os
import re
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakecdc.metadata import names
from local_services.reader_tools import COSMOS, DBT
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import Install
from tests.airflow_provider_lakecdc.dag_runs.support import states
from tests.airflow_provider_lakecdc.tables import position
from tests.lakes import open_catalog

PAGE = (home.REPOSITORY / "docs" / "guides" / "dbt.md").read_text()
_FILE = re.compile(r"^```\w+ (\S+\.\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ORDERS = [(1, 1, "2026-01-01T05:00:00"), (2, 1, "2026-01-01T06:00:00"), (3, 2, "2026-01-02T05:00:00")]


def _with_cosmos(dag: str) -> str:
    """Replace the task that runs dbt by the group of tasks of the page."""
    (group,) = re.findall(r"^```python cosmos\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return dag.partition("    fresh >> ")[0] + textwrap.indent(group, "    ")


@pytest.mark.soak
@pytest.mark.parametrize("cosmos", [False, True], ids=["bash", "cosmos"])
def test_models_are_built_from_fresh_tables(
    install: Install, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cosmos: bool
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
        text = text.replace("/opt/dbt/env", str(DBT.folder))
        return text.replace("/opt/dbt", f"{tmp_path}/dbt").replace("/opt/lake", str(tmp_path))

    for name, text in _FILE.findall(PAGE):
        path = tmp_path / "dbt" / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(here(text))
    dag, *_ = re.findall(r"^```python dag\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    built = ["dbt_build"]
    if cosmos:
        COSMOS.check()
        monkeypatch.syspath_prepend(next(COSMOS.folder.glob("lib/python*/site-packages")))
        dag, built = _with_cosmos(dag), [f"models.orders_by_day.{step}" for step in ("run", "test")]
    run = install("shop_models", here(dag)).test()
    assert states(run) == dict.fromkeys(["shop_orders_is_fresh", "shop_customers_is_fresh", *built], ["success"])
    with duckdb.connect(str(tmp_path / "dbt" / "shop" / "shop.duckdb")) as models:
        days = models.execute("SELECT day::text, orders FROM orders_by_day ORDER BY day").fetchall()
    assert days == [("2026-01-01", 2), ("2026-01-02", 1)]
