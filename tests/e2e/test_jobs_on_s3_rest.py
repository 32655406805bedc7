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

from lakecdc.contract import runtime
from local_services import spark_classes
from local_services.iceberg_rest import IcebergRest
from local_services.s3 import S3Server
from tests.lakecdc.ingest.histories import History, lines

pytestmark = pytest.mark.services

JOBS = Path(__file__).parents[2] / "spark_jobs"
TABLES = ["shop.v2", "shop.v3"]
SECRET = "LAKECDC_TEST_SECRET_KEY"


# a start of Spark each would take longer than all that the jobs do
ONE_AFTER_ANOTHER = """
import runpy, sys
for script in sys.argv[1].split(","):
    place = "s3://documents/" + script.rpartition("/")[2].removesuffix(".py")
    sys.argv = [script, "--spec", place + "/spec.json", "--report", place + "/report.json"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, (script, end.code)
"""


class ByHand:
    """Runs job scripts with specs and reports in a bucket."""

    def __init__(self, folder: Path, s3: S3Server, rest: IcebergRest) -> None:
        self.folder, self.s3, self.rest = folder, s3, rest

    def run(self, **jobs: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Run jobs, one after another, and return their tables' reports; each must be done or have nothing to do.

        :param jobs: the parts of the spec by the job's name.
        """
        properties = {**self.rest.properties, "s3.secret-access-key": {"env": SECRET}}
        client = self.s3.client()
        for job, parts in jobs.items():
            spec = {"version": 1, "job": job, "catalog": {"name": "lake", "properties": properties}, **parts}
            client.put_object(Bucket="documents", Key=f"{job}/spec.json", Body=json.dumps(spec).encode())
        scripts = [str(JOBS / f"{job}.py") for job in jobs]
        if len(scripts) == 1:
            place = f"s3://documents/{next(iter(jobs))}"
            arguments = [scripts[0], "--spec", f"{place}/spec.json", "--report", f"{place}/report.json"]
        else:
            arguments = ["-c", ONE_AFTER_ANOTHER, ",".join(scripts)]
        environment = {**os.environ, **self.s3.aws_environment, SECRET: self.s3.secret_key, "SPARK_MASTER": "local[2]"}
        environment |= spark_classes.environment(more=runtime.packages(self.rest.properties))
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert self.s3.secret_key not in done.stderr + done.stdout
        return [self._tables(job) for job in jobs]

    def _tables(self, job: str) -> list[dict[str, Any]]:
        stored = self.s3.client().get_object(Bucket="documents", Key=f"{job}/report.json")["Body"].read()
        report = json.loads(stored)
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
    ingest, done = {"source": source, "target": target}, 0
    for batch in range(2):
        for key in list(history.rows)[batch::7]:
            history.update(key, touch_doc=bool(key % 2))
        history.delete(batch)
        (by_hand.folder / f"{batch}.jsonl").write_text(lines(history.events[done:]))
        done = len(history.events)
        if not batch:
            by_hand.run(ingest=ingest)
    _, converted = by_hand.run(ingest=ingest, rewrite_delete_files={"tables": TABLES})
    assert [t["outcome"] for t in converted] == ["done", "done"]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
    compacted, *_ = by_hand.run(
        compact_data_files={"tables": TABLES, "options": {"min_input_files": 2}},
        sort_data_files={"tables": TABLES, "options": {"min_overlap_depth": 1.0}},
        rewrite_manifests={"tables": TABLES, "options": {"min_manifests": 1}},
        expire_snapshots={"tables": TABLES, "options": {"max_age": 0.0, "retain_last": 1}},
    )
    assert [t["outcome"] for t in compacted] == ["done", "done"]
    assert by_hand.rows("shop.v2") == by_hand.rows("shop.v3") == history.expected()
