"""Log lines of a task, and limits of DuckDB inside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from airflow_provider_lakecdc.submit.spark_submit import JobOutput
from lakecdc.runtime.session import task_memory
from lakecdc.runtime.worker import TASK_MEMORY, TaskProgress, open_duckdb, prepare_workers
from tests.conftest import Lake

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = ("memory_limit", "temp_directory", "TimeZone", "threads", "enable_external_access")
EXTENSIONS = ("autoinstall_known_extensions", "autoload_known_extensions")


def settings_of_a_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield DuckDB's settings."""
    import pyarrow as pa

    for _ in batches:
        with open_duckdb() as connection, connection.cursor() as beside:
            columns = ", ".join(f"current_setting('{name}')::VARCHAR AS {name}" for name in SETTINGS + EXTENSIONS)
            row = beside.execute(f"SELECT {columns}").to_arrow_table().to_pylist()
            yield pa.RecordBatch.from_pylist([{**row[0], "disks": os.environ["SPARK_LOCAL_DIRS"]}])


def test_duckdb_uses_its_share_of_memory_and_sparks_disks(lake: Lake) -> None:
    columns = ", ".join(f"{name} string" for name in (*SETTINGS, *EXTENSIONS, "disks"))
    row = lake.spark.range(1).coalesce(1).mapInArrow(settings_of_a_task, columns).first()
    assert row is not None
    share = task_memory(lake.spark.sparkContext.getConf().get)
    size, unit = row["memory_limit"].split()
    assert float(size) * {"MiB": 1, "GiB": 1024}[unit] == max(256, share)
    assert any(row["temp_directory"].startswith(f"{disk}/duckdb-") for disk in row["disks"].split(","))
    assert (row["TimeZone"], row["threads"], row["enable_external_access"]) == ("UTC", "1", "false")
    assert [row[name] for name in EXTENSIONS] == ["false", "false"]


def test_workers_use_jemalloc_unless_the_user_chose_another_allocator(lake: Lake) -> None:
    def allocator(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [pa.default_memory_pool().backend_name]})

    assert lake.spark.range(1).coalesce(1).mapInArrow(allocator, "name string").first() == ("jemalloc",)
    chosen = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    prepare_workers(chosen, 700)
    assert chosen == {"ARROW_DEFAULT_MEMORY_POOL": "system", TASK_MEMORY: "700"}


def test_every_connection_is_in_utc() -> None:
    script = """
from lakecdc.runtime.worker import open_duckdb
with open_duckdb() as connection, connection.cursor() as beside:
    for each in (connection, beside):
        assert each.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "TZ": "America/New_York"})


def test_duckdb_spills_to_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(TASK_MEMORY, "1")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with open_duckdb() as connection:
        connection.execute("SET memory_limit = '24MiB'")
        rows = connection.execute("SELECT hash(range) AS h, range FROM range(3_000_000) ORDER BY h").to_arrow_reader()
        assert rows.read_next_batch().num_rows
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith(f"duckdb-{os.getpid()}-") and list(folder.iterdir())
        rows.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/lakecdc-leak'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
    ],
)
def test_duckdb_cannot_access_files_or_extensions(statement: str) -> None:
    with open_duckdb() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)


def test_a_task_logs_its_rows_every_ten_seconds_as_progress_of_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    clock, heard = [100.0], list[str]()
    progress = TaskProgress("shop.orders (task 2)", lambda: clock[0])
    for _ in range(24):
        clock[0] += 1
        progress.add(50_000, 4 * 1024**2)
    # the operator shows such lines on the page
    list(JobOutput({"progress of ": heard.append}).fold(capfd.readouterr().err.splitlines()))
    assert heard == [
        "shop.orders (task 2): 500,000 rows, 40 MB in 10 seconds",
        "shop.orders (task 2): 1,000,000 rows, 80 MB in 20 seconds",
    ]
