"""Run every job once, by hand like the README shows, on an S3 server and an Iceberg REST catalog."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection
from airflow_provider_lakecdc.governance.precheck import precheck_tables
from lakecdc.contract import runtime
from lakecdc.contract.report import now
from lakecdc.contract.spec import parse_spec
from local_services import spark_classes
from local_services.iceberg_rest import IcebergRest
from local_services.process import PATIENCE
from local_services.s3 import S3Server
from tests.conftest import interpreted
from tests.lakecdc.ingest.histories import History, lines
from tests.on_demand import on_demand
from tests.readers import duckdb_rows

pytestmark = pytest.mark.services

JOBS = Path(__file__).parents[2] / "spark_jobs"
TABLES = ["shop.v2", "shop.v3"]
DAY = 24 * 3600
SECRET = "LAKECDC_TEST_SECRET_KEY"


# starting Spark for each would take longer than all the jobs
ONE_AFTER_ANOTHER = """
import runpy, sys
for line in sys.stdin:
    script = line.strip()
    place = "s3://documents/" + script.rpartition("/")[2].removesuffix(".py")
    sys.argv = [script, "--spec", place + "/spec.json", "--report", place + "/report.json"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, (script, end.code)
    print("ended", flush=True)
"""


class ByHand:
    """Run job scripts with specs and reports in a bucket.

    :param folder: folder of the jobs' input.
    """

    def __init__(self, folder: Path, s3: S3Server, rest: IcebergRest) -> None:
        self.folder, self.s3, self.rest = folder, s3, rest
        self.printed: list[str] = []
        self._shared: subprocess.Popen[str] | None = None

    def run_alone(self, job: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
        """Run a job in a separate process and return its tables' reports, which must be done or nothing.

        :param parts: members of the spec.
        """
        self._write(job, parts)
        place = f"s3://documents/{job}"
        arguments = ("--spec", f"{place}/spec.json", "--report", f"{place}/report.json")
        with self._start(str(JOBS / f"{job}.py"), *arguments) as process:
            self._ended(process)
        return self._tables(job)

    def run(self, job: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
        """Run a job in the shared process."""
        self._write(job, parts)
        self._shared = process = self._shared or self._start("-c", ONE_AFTER_ANOTHER, **interpreted())
        assert process.stdin is not None and process.stdout is not None
        print(JOBS / f"{job}.py", file=process.stdin, flush=True)
        for line in process.stdout:
            self.printed.append(line)
            if line == "ended\n":
                return self._tables(job)
        raise AssertionError("".join(self.printed)[-4000:])

    def end(self) -> None:
        """End the shared process."""
        if self._shared is not None:
            self._ended(self._shared)

    def _ended(self, process: subprocess.Popen[str]) -> None:
        self.printed.append(process.communicate(timeout=PATIENCE)[0])
        assert process.returncode == 0, "".join(self.printed)[-4000:]

    def _write(self, job: str, parts: dict[str, Any]) -> None:
        properties = {**self.rest.properties, "s3.secret-access-key": {"env": SECRET}}
        spec = {"version": 1, "job": job, "catalog": {"name": "lake", "properties": properties}, **parts}
        self.s3.client().put_object(Bucket="documents", Key=f"{job}/spec.json", Body=json.dumps(spec).encode())

    def _start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **self.s3.aws_environment, SECRET: self.s3.secret_key, "SPARK_MASTER": "local[2]"}
        environment |= spark_classes.environment(more=runtime.packages(self.rest.properties)) | variables
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _tables(self, job: str) -> list[dict[str, Any]]:
        stored = self.s3.client().get_object(Bucket="documents", Key=f"{job}/report.json")["Body"].read()
        report = json.loads(stored)
        assert {t["outcome"] for t in report["tables"]} <= {"done", "nothing"}, report
        return list(report["tables"])

    def catalog(self) -> Any:
        """Open the catalog in pyiceberg."""
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog("lake", **{k: v for k, v in self.rest.properties.items() if k != "type"})

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return a table's rows as pyiceberg reads them from the REST catalog."""
        scan = self.catalog().load_table(table).scan(selected_fields=("id", "name", "n", "doc"))
        return sorted((r["id"], r["name"], r["n"], r["doc"]) for r in scan.to_arrow().to_pylist())

    def rows_with_deletes(self, table: str) -> list[tuple[Any, ...]]:
        """Return a table's rows as read by DuckDB, which supports equality deletes."""
        account = {"key": self.s3.access_key, "secret": self.s3.secret_key, "endpoint_url": self.s3.endpoint}
        storage = s3fs.S3FileSystem(**account, use_listings_cache=False)
        location = self.catalog().load_table(table).metadata_location
        return sorted(duckdb_rows(location, "id, name, n, doc", storage=storage))


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByHand]:
    """Start both services, empty."""
    folder = tmp_path_factory.mktemp("s3rest")
    with S3Server(folder / "buckets") as s3:
        for bucket in ("warehouse", "documents"):
            s3.create_bucket(bucket)
        with IcebergRest(folder / "rest", s3) as rest:
            runner = ByHand(folder, s3, rest)
            yield runner
            runner.end()
            assert s3.secret_key not in "".join(runner.printed)


def test_every_job_once(by_hand: ByHand) -> None:
    history = History(random.Random(9))
    for key in range(60):
        history.insert(key)
    source = {"type": "files", "path": f"{by_hand.folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    target = [
        {
            "table": table,
            "key": ["id"],
            "source_table": "shop.t",
            "format_version": version,
            "partition_by": ["bucket(2, id)"],
        }
        for table, version in zip(TABLES, (2, 3), strict=True)
    ]
    ingest, done = {"source": source, "target": target}, 0
    for batch in range(2):
        for key in list(history.rows)[batch::7]:
            history.update(key, touch_doc=bool(key % 2))
        history.delete(batch)
        (by_hand.folder / f"{batch}.jsonl").write_text(lines(history.events[done:]))
        done = len(history.events)
        (by_hand.run if batch else by_hand.run_alone)("ingest", ingest)
    converted = by_hand.run("rewrite_delete_files", {"tables": TABLES})
    assert [t["outcome"] for t in converted] == ["done", "done"]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
    options: dict[str, dict[str, Any]] = {
        "compact_data_files": {"min_input_files": 2},
        "sort_data_files": {"min_overlap_depth": 1.0},
        "rewrite_manifests": {"min_manifests": 1},
        "expire_snapshots": {"max_age": 0.0, "retain_last": 1},
    }
    reports = {job: by_hand.run(job, {"tables": TABLES, "options": given}) for job, given in options.items()}
    assert [t["outcome"] for t in reports["compact_data_files"]] == ["done", "done"]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
    assert_workers_see_it(by_hand, options)
    assert_changes_reach_others(by_hand, len(history.expected()))
    assert_undone_and_done_again(by_hand, history, ingest)
    prepared = by_hand.run("set_readers", {"tables": TABLES, "options": {"readers": ["databricks"]}})
    assert [t["outcome"] for t in prepared] == ["done", "done"]
    assert [by_hand.catalog().load_table(table).format_version for table in TABLES] == [3, 3]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3")


def assert_undone_and_done_again(by_hand: ByHand, history: History, ingest: dict[str, Any]) -> None:
    """Check that a rollback restores a moment, and that the next ingestion reads the later events again."""

    def rows() -> list[tuple[Any, ...]]:
        first, second = map(by_hand.rows_with_deletes, TABLES)
        assert first == second
        return first

    before, moment, done = history.expected(), now(), len(history.events)
    history.insert(1000)
    history.delete(next(iter(history.rows)))
    (by_hand.folder / "undone.jsonl").write_text(lines(history.events[done:]))
    by_hand.run("ingest", ingest)
    assert rows() == history.expected() != before
    reports = by_hand.run("rollback_tables", {"tables": TABLES, "options": {"to": moment}})
    assert [table["outcome"] for table in reports] == ["done", "done"]
    assert rows() == before
    for table in reports:
        assert table["metrics"]["kept_as"] in by_hand.catalog().load_table(table["table"]).refs()
    by_hand.run("ingest", ingest)
    assert rows() == history.expected()


def assert_changes_reach_others(by_hand: ByHand, rows: int) -> None:
    """Check that a table and a bucket receive all rows once."""
    destinations = {"shop.v2": {"table": "shop.v2_changes"}, "shop.v3": {"folder": "s3://documents/exports/v3"}}
    parts = {"tables": TABLES, "options": {"destinations": destinations, "consumer": "others"}}
    first, second = (by_hand.run("export_changes", parts) for _ in range(2))
    assert [table["metrics"]["rows_written"] for table in first] == [rows, rows]
    assert [table["outcome"] for table in second] == ["nothing", "nothing"]
    (marker,) = (by_hand.s3.folder / "documents/exports/v3").glob("*/_SUCCESS")
    written = {file["name"]: file["rows"] for file in json.loads(marker.read_text())["files"]}
    assert {path.name: pq.read_metadata(path).num_rows for path in marker.parent.glob("*.parquet")} == written


def assert_workers_see_it(by_hand: ByHand, options: dict[str, dict[str, Any]]) -> None:
    """Check that workers see the ingested tables, and that the jobs left no work."""
    workers: Any = SimpleNamespace(load=by_hand.catalog)
    assessment = assess(workers, TableSelection((), ("shop.*",)), Steps(options))
    assert {each.table for each in assessment.tables if each.jobs} == set(TABLES)
    for job in ("compact_data_files", "sort_data_files"):
        spec = {"version": 1, "job": job, "catalog": {"name": "lake"}, "tables": TABLES, "options": options[job]}
        looked = precheck_tables(workers, parse_spec(spec))
        assert ({table.table for table in looked.idle}, looked.left) == (set(TABLES), frozenset()), job


@pytest.mark.parametrize("count", on_demand((2_000, 50_000), in_ci=(2_000,)))
def test_orphans_are_sentenced_and_deleted_later(by_hand: ByHand, count: int) -> None:
    location = f"warehouse/my lake%20/t{count}"
    by_hand.catalog().create_namespace_if_not_exists("kept")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = by_hand.catalog().create_table(f"kept.t{count}", rows.schema, location=f"s3://{location}")
    for _ in range(2):
        table.append(rows)
    folder = by_hand.s3.folder / location
    live = objects(folder)
    for number in range(count):
        orphan = folder / f"data/p={number % 37}/{number:06d} a%20b+é.parquet"
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"x")
    everything = objects(folder)
    for path in everything:
        os.utime(path, (time.time() - 30 * DAY,) * 2)

    def run(**options: Any) -> dict[str, Any]:
        parts = {"tables": [f"kept.t{count}"], "options": options}
        return dict(by_hand.run("remove_orphan_files", parts)[0]["metrics"])

    assert run()["orphan_files"] == count
    removal = run(dry_run=False)
    assert (removal["files_taken"], removal["taken_by"]) == (count, "sentenced")
    # no file is sentenced twice, and dropped sentences are renewed
    assert run(dry_run=False)["files_taken"] == 0
    assert run(dry_run=False, action="restore")["files_restored"] == count
    assert run(dry_run=False)["files_taken"] == count
    assert objects(folder) == everything

    # rewritten since its sentence, so it is another file
    orphan.write_bytes(b"new")
    assert run(dry_run=False, action="purge")["files_waiting"] == count
    for sentence in folder.glob("_lakecdc_orphans/runs/*/*.json"):
        text = json.loads(sentence.read_text())
        by_hand.s3.client().put_object(
            Bucket="warehouse",
            Key=str(sentence.relative_to(by_hand.s3.folder / "warehouse")),
            Body=json.dumps(text | {"at_ms": text["at_ms"] - 8 * DAY * 1000}).encode(),
        )
    purged = run(dry_run=False, action="purge")
    assert (purged["files_deleted"], purged["files_spared"]) == (count - 1, 1)
    assert objects(folder) == live | {orphan}
    assert by_hand.catalog().load_table(f"kept.t{count}").scan().to_arrow().num_rows == 4


def objects(folder: Path) -> set[Path]:
    """Return the files of a folder of the server without the job's own."""
    return {path for path in folder.rglob("*") if path.is_file() and "_lakecdc_orphans" not in path.parts}
