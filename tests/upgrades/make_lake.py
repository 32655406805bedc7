"""Make the lake of a release for tests of later code: tables, audit and configuration, packed.

Run by a Python with the release and its Airflow installed, on a machine with Java:

    ~/lakecdc/bin/python tests/upgrades/make_lake.py tests/upgrades/0.1.0.tar.xz
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Iceberg's metadata contains absolute paths
FOLDER = Path("/tmp/lakecdc-release")
CONFIG = {
    "catalog_conn_id": "lake",
    "source": {"type": "files", "path": f"{FOLDER}/feed/*.jsonl", "format": "debezium-json"},
    "targets": [
        {
            "table": "shop.orders",
            "key": ["id"],
            "format_version": 2,
            "deletes": "equality",
            "partition_by": ["bucket(2, id)"],
            "columns": {"id": "bigint", "name": "string", "amount": "bigint"},
        },
        {
            "table": "shop.prices",
            "key": ["id"],
            "format_version": 3,
            "deletes": "resolved",
            "history_table": "shop.price_history",
        },
        {"table": "shop.clicks", "mode": "append", "freshness": None},
    ],
    "policy": {"shop.*": {"owner": "shop-team"}},
    "freshness": "1h",
    "alerts": {"missed_freshness": True, "unpaid_runs": 3},
    "schedules": {"ingest": "*/15 * * * *", "hourly_governance": "37 * * * *"},
    "options": {"compact_data_files": {"min_input_files": 2}, "expire_snapshots": {"retain_last": 2}},
    "retries": 0,
}
CATALOG = {"type": "sql", "uri": f"sqlite:///{FOLDER}/catalog.db", "warehouse": f"file://{FOLDER}/warehouse"}


def event(table: str, op: str, lsn: int, **row: Any) -> str:
    """Return a line with a Debezium event of a change."""
    source = {"db": "shop", "schema": "shop", "table": table, "lsn": lsn, "ts_ms": 1_767_225_600_000 + lsn}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**images, "op": op, "ts_ms": source["ts_ms"], "source": source}) + "\n"


def first_batch() -> str:
    """Return rows of every table, and messages that no table accepts."""
    orders = [event("orders", "c", key, id=key, name=f"order {key}", amount=key) for key in range(1, 13)]
    prices = [event("prices", "c", 10 + key, id=key, price=key * 1.5) for key in range(1, 5)]
    clicks = [event("clicks", "c", 20 + key, id=key, page="home") for key in range(1, 4)]
    return "".join([*orders, *prices, *clicks, event("orders", "c", 30, id="a", name="odd", amount=1)])


def second_batch() -> str:
    """Return updates and deletes."""
    return "".join(
        [
            event("orders", "u", 40, id=1, name="order 1", amount=100),
            event("orders", "d", 41, id=2, name=None, amount=None),
            event("prices", "u", 42, id=1, price=9.5),
            event("prices", "d", 43, id=2, price=None),
            event("clicks", "c", 44, id=4, page="cart"),
        ]
    )


def variables() -> dict[str, str]:
    """Return Airflow's variables that open the lake."""
    return {
        "LAKECDC_CONFIG": str(FOLDER / "lakecdc.json"),
        "AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "iceberg", "extra": {**CATALOG, "catalog_name": "lake"}}),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Lock and empty the folder, which other checkouts of this machine use too; remove it at the end."""
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(FOLDER, ignore_errors=True)


def make(archive: Path) -> None:
    """Run the release's DAGs on two batches, and pack the results."""
    home = FOLDER / "airflow"
    (home / "dags").mkdir(parents=True)
    (FOLDER / "feed").mkdir()
    (FOLDER / "lakecdc.json").write_text(json.dumps(CONFIG, indent=1))
    from airflow_provider_lakecdc import example_dags

    for file in Path(example_dags.__path__[0]).glob("lakecdc_*.py"):
        shutil.copy(file, home / "dags")
    given = {**os.environ, **variables(), "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    given["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), given["PATH"]])

    def airflow(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "airflow", *arguments], env=given, check=True)

    airflow("db", "migrate")
    for number, batch in enumerate((first_batch(), second_batch())):
        (FOLDER / "feed" / f"{number}.jsonl").write_text(batch)
        airflow("dags", "test", "lakecdc_ingest")
    airflow("dags", "test", "lakecdc_hourly_governance")
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in ("lakecdc.json", "feed", "catalog.db", "warehouse"):
            packed.add(FOLDER / name, name)


if __name__ == "__main__":
    with own_folder():
        make(Path(sys.argv[1]).absolute())
