"""Many files are read in micro-batches of bounded size."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.sources.file_records import list_files
from lakecdc.ingest.sources.files import Queue, sizes
from lakecdc.metadata.names import POSITIONS
from lakecdc.metadata.positions import decode
from lakecdc.probes import preflight
from tests.lakecdc.ingest.sources.files.conftest import Fed


def test_a_batch_has_at_least_one_file_and_as_many_as_fit() -> None:
    queue, batches = Queue(["a", "b", "c", "d", "e"]), []
    while queue.files:
        batches.append(queue.take({"a": 50, "b": 50, "c": 1, "d": 500, "e": 1}, 100))
        assert queue.take({"a": 50, "b": 50, "c": 1, "d": 500, "e": 1}, 100) == batches[-1]
        queue.done()
    assert batches == [["a", "b"], ["c"], ["d"], ["e"]]
    assert Queue(["a", "b"]).take({"a": 50, "b": 50}, 0) == ["a", "b"]
    assert Queue([]).take({}, 100) == []


def test_sizes_of_local_and_remote_files_are_known(spark: SparkSession, tmp_path: Path) -> None:
    for size, name in enumerate(("plain", "with space", "100%", "a#b", "ä=1"), 1):
        (tmp_path / name).write_text("x" * size)
    files = list_files(spark, [str(tmp_path)])
    local = sizes(spark, [str(tmp_path)], files)
    assert sorted(local.values()) == [1, 2, 3, 4, 5]
    # a file elsewhere makes Spark list them all
    assert sizes(spark, [str(tmp_path)], [*files, "s3://bucket/key"]) == {**local, "s3://bucket/key": 0}


def test_a_backlog_is_read_in_bounded_batches(fed: Fed) -> None:
    fed.source = {"format": "csv", "max_batch_bytes": 20}
    for number in range(1, 6):
        fed.write(f"{number}.csv", "id,v", f"{number % 3},{number}")
    report = fed.run()
    assert (report.metrics["commits"], report.metrics["files_read"], report.metrics["position"]["count"]) == (3, 5, 5)
    assert fed.rows("id, v") == [("0", "3"), ("1", "4"), ("2", "5")]
    assert fed.run(outcome="nothing").metrics["files_read"] == 0
    fed.source["max_files_per_run"] = 1
    fed.write("6.csv", "id,v", "0,6")
    fed.write("7.csv", "id,v", "0,7")
    assert fed.run().metrics["files_read"] == 1
    assert fed.rows("v")[-1] == ("6",)


def test_read_files_are_distinguished_from_new_ones_without_spark(fed: Fed) -> None:
    def idle() -> bool:
        position = decode(fed.lake.table(fed.name).head().summary[POSITIONS])  # type: ignore[union-attr]
        return preflight.check(parse_spec(fed.spec()), {fed.name: position}).idle is not None

    for name in ("a b%+.csv", "müller (1)&.csv", "c=d.csv"):
        fed.write(name, "id", "1")
    fed.run()
    assert idle()
    fed.write("z.csv", "id", "2")
    assert not idle()
