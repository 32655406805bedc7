"""Every job once, by hand as the README shows it, on an S3 server and an Iceberg REST catalog."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_services.iceberg_rest import IcebergRest
from local_services.s3 import S3Server
from tests.lakecdc.ingest.histories import History, lines

pytestmark = pytest.mark.services

JOBS = Path(__file__).parents[2] / "spark_jobs"
TABLES = ["shop.v2", "shop.v3"]
SECRET = "LAKECDC_TEST_SECRET_KEY"


class ByHand:
    """Runs job scripts with specs and reports in a bucket."""

    def __init__(self, folder: Path, s3: S3Server, rest: IcebergRest) -> None:
        self.folder, self.s3, self.rest = folder, s3, rest

    def run(self, job: str, **parts: Any) -> list[dict[str, Any]]:
        """Run a job and return its tables' reports; every one must be done or have nothing to do."""
        properties = {**self.rest.properties, "s3.secret-access-key": {"env": SECRET}}
        spec = {"version": 1, "job": job, "catalog": {"name": "lake", "properties": properties}, **parts}
        client = self.s3.client()
        client.put_object(Bucket="documents", Key=f"{job}/spec.json", Body=json.dumps(spec).encode())
        place = f"s3://documents/{job}"
        command = [
            sys.executable,
            str(JOBS / f"{job}.py"),
            "--spec",
            f"{place}/spec.json",
            "--report",
            f"{place}/report.json",
        ]
        environment = {**os.environ, **self.s3.aws_environment, SECRET: self.s3.secret_key, "SPARK_MASTER": "local[2]"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert self.s3.secret_key not in done.stderr + done.stdout
        report = json.loads(client.get_object(Bucket="documents", Key=f"{job}/report.json")["Body"].read())
        assert {t["outcome"] for t in report["tables"]} <= {"done", "nothing"}, report
        return list(report["tables"])

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """A table's rows as pyiceberg reads them from the REST catalog."""
        from pyiceberg.catalog.rest import RestCatalog

        catalog = RestCatalog("lake", **{k: v for k, v in self.rest.properties.items() if k != "type"})
        found = catalog.load_table(table).scan(selected_fields=("id", "name", "n", "doc")).to_arrow().to_pylist()
        return sorted((r["id"], r["name"], r["n"], r["doc"]) for r in found)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByHand]:
    """Both services, empty."""
    folder = tmp_path_factory.mktemp("s3rest")
    with S3Server(folder / "buckets") as s3:
        for bucket in ("warehouse", "documents"):
            s3.create_bucket(bucket)
        with IcebergRest(folder / "rest", s3) as rest:
            yield ByHand(folder, s3, rest)


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
    done = 0
    for batch in range(2):
        for key in list(history.rows)[batch::7]:
            history.update(key, touch_doc=bool(key % 2))
        history.delete(batch)
        (by_hand.folder / f"{batch}.jsonl").write_text(lines(history.events[done:]))
        done = len(history.events)
        by_hand.run("ingest", source=source, target=target)
    converted = by_hand.run("rewrite_delete_files", tables=TABLES)
    assert [t["outcome"] for t in converted] == ["done", "done"]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
    compacted = by_hand.run("compact_data_files", tables=TABLES, options={"min_input_files": 2})
    assert [t["outcome"] for t in compacted] == ["done", "done"]
    by_hand.run("sort_data_files", tables=TABLES, options={"min_overlap_depth": 1.0})
    by_hand.run("rewrite_manifests", tables=TABLES, options={"min_manifests": 1})
    by_hand.run("expire_snapshots", tables=TABLES, options={"max_age": 0.0, "retain_last": 1})
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
